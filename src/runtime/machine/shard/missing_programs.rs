//! Starts that were refused because the image's program is missing. The shard searches for it every second, so that an installed program
//! starts at once and not after the backoff.
//!
//! Attempts with the same image, arguments and PATH form a group, which is searched once. Start reading at [`MissingPrograms::take_found`].

use super::super::super::image::{self, Environment};
use crate::object::Str;
use crate::world::start::Start;
use std::time::{Duration, Instant};

/// Pause between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of groups. Further attempts are tried again after their backoff.
const MAX_GROUPS: usize = 256;
/// Maximum number of attempts of one group.
const MAX_ATTEMPTS: usize = 4096;

/// An attempt: pod, container, number.
pub type Attempt = (Str, Str, u32);

struct Group {
    start: Start,
    attempts: Vec<Attempt>,
}

/// The attempts that lack a program.
#[derive(Default)]
pub struct MissingPrograms {
    groups: Vec<Group>,
    due: Option<Instant>,
}

impl MissingPrograms {
    /// Looks for the program of a start that was refused.
    pub fn add(&mut self, start: &Start) {
        let attempt = (start.pod_uid.clone(), start.container.clone(), start.attempt);
        let is_same = |group: &&mut Group| {
            let known = &group.start;
            let path = |start: &Start| start.env.iter().rev().find(|(name, _)| name == "PATH").cloned();
            (&known.image, &known.args, &known.requested_image, &known.manifest_dir)
                == (&start.image, &start.args, &start.requested_image, &start.manifest_dir)
                && path(known) == path(start)
        };
        let has_room = self.groups.len() < MAX_GROUPS;
        match self.groups.iter_mut().find(is_same) {
            Some(group) if group.attempts.len() < MAX_ATTEMPTS => group.attempts.push(attempt),
            None if has_room => {
                self.groups.push(Group { start: start.clone(), attempts: vec![attempt] });
            }
            _ => return,
        }
        self.due.get_or_insert_with(|| Instant::now() + SEARCH_INTERVAL);
    }

    /// Forgets the attempts of a pod, or those of one of its containers.
    pub fn forget_pod(&mut self, pod: &Str, container: Option<&Str>) {
        let is_meant = |(uid, name, _): &Attempt| uid == pod && container.is_none_or(|container| container == name);
        for group in &mut self.groups {
            group.attempts.retain(|attempt| !is_meant(attempt));
        }
        self.groups.retain(|group| !group.attempts.is_empty());
    }

    /// Time of the next check; `None` while no program is missing.
    pub fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.groups.is_empty())
    }

    /// Removes and returns the attempts whose program exists now, if a check is due.
    pub fn take_found(&mut self, environment: &Environment) -> Vec<Attempt> {
        let now = Instant::now();
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let is_there = |group: &mut Group| image::can_be_found(&group.start, environment);
        let found: Vec<Group> = self.groups.extract_if(.., is_there).collect();
        self.due = Some(now + SEARCH_INTERVAL).filter(|_| !self.groups.is_empty());
        found.into_iter().flat_map(|group| group.attempts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::testing::start_request;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn program_that_comes_later_is_found_for_every_attempt_that_lacks_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = Environment(vec![("PATH".into(), folder.path().display().to_string())]);
        let start = |uid: &str, image: &str| Start { image: image.into(), ..start_request(uid, "c", 3) };
        let mut missing = MissingPrograms::default();
        assert!(missing.due().is_none());
        for (uid, image) in
            [("a", "team/server:1"), ("b", "team/server:1"), ("c", "team/other"), ("d", "team/server:1")]
        {
            missing.add(&start(uid, image));
        }
        missing.forget_pod(&"d".into(), None);
        missing.forget_pod(&"b".into(), Some(&"another".into()));
        assert_eq!(missing.groups.len(), 2);
        assert!(missing.take_found(&environment).is_empty(), "it is not time yet");
        let program = folder.path().join("server");
        fs::write(&program, "#!/bin/sh\n").expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        missing.due = Some(Instant::now());
        let found = missing.take_found(&environment);
        assert_eq!(found, [("a".into(), "c".into(), 3), ("b".into(), "c".into(), 3)]);
        assert!(missing.due().is_some(), "the other one is still looked for");
        missing.forget_pod(&"c".into(), None);
        assert!(missing.due().is_none());
    }
}
