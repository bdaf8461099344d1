//! The user of a container, by its security context and its pod's.
//!
//! Only root can start a process as another user, so for ordinary users any other user or group is refused, with the
//! reason.

use super::pod::{LocalPod, PodContainer};
use crate::world::ContainerUser;

/// Returns the user to run as, when it differs from the user of kloop; the error is a `CreateContainerConfigError`.
pub fn container_user(pod: &LocalPod, member: &PodContainer) -> Result<Option<ContainerUser>, String> {
    if pod.is_simulated {
        return Ok(None);
    }
    let own = member.spec.security_context.as_ref();
    let shared = pod.spec.security_context.as_ref();
    let id = |number: i64| u32::try_from(number).map_err(|_| format!("{number} is not a valid user or group ID"));
    let given_user = own.and_then(|own| own.run_as_user).or(shared.and_then(|shared| shared.run_as_user));
    let user = given_user.map(id).transpose()?;
    let group = own.and_then(|own| own.run_as_group).or(shared.and_then(|shared| shared.run_as_group));
    let group = group.map(id).transpose()?;
    let files = shared.and_then(|shared| shared.fs_group).map(id).transpose()?;
    let more = shared.and_then(|shared| shared.supplemental_groups.as_ref()).into_iter().flatten();
    let mut groups = more.map(|group| id(*group)).collect::<Result<Vec<u32>, String>>()?;
    groups.extend(files);

    let (me, mine) = pod.world.settings.runs_as;
    let non_root = own.and_then(|own| own.run_as_non_root).or(shared.and_then(|shared| shared.run_as_non_root));
    let of_image = super::image::user(pod, member).filter(|_| user.is_none() && me == 0);
    let of_image = of_image.as_deref().map(|named| named.split(':').next().unwrap_or(named).parse::<u32>());
    if non_root == Some(true) && matches!(of_image, Some(Err(_))) {
        return Err("container has runAsNonRoot and image has non-numeric user, cannot verify user is non-root; \
                    write a number as the Image's user, or runAsUser"
            .into());
    }
    if non_root == Some(true) && user.or(of_image.and_then(Result::ok)).unwrap_or(me) == 0 {
        // Kubernetes' words for a user from the manifest, and for a user from the image.
        let why = if user.is_some() { "container's runAsUser breaks non-root policy" } else { AS_ROOT };
        let hint = if user.is_some() { "" } else { "; write runAsUser, because kloop runs as root" };
        return Err(format!("{why} (pod: \"{}\", container: {}){hint}", pod.full_name(), member.spec.name));
    }
    if me != 0 {
        let refuse = |field: &str, number: u32| {
            Err(format!(
                "{field} {number}: kloop runs as user {me} (group {mine}), and only root can start processes as another; leave it out of the manifest, or run kloop as root"
            ))
        };
        let foreign = |id: &u32| *id != mine;
        return match (user.filter(|user| *user != me), group.filter(foreign), groups.into_iter().find(foreign)) {
            (Some(user), _, _) => refuse("runAsUser", user),
            (_, Some(group), _) => refuse("runAsGroup", group),
            (_, _, Some(group)) if files == Some(group) => refuse("fsGroup", group),
            (_, _, Some(group)) => refuse("supplementalGroups", group),
            (None, None, None) => Ok(None),
        };
    }
    let is_said = user.is_some() || group.is_some() || !groups.is_empty();
    let strict = shared.and_then(|shared| shared.supplemental_groups_policy.as_deref()) == Some("Strict");
    Ok(is_said.then_some(ContainerUser { user, group, groups, files, strict }))
}

/// Returns the group that owns the files of the pod's volumes (`fsGroup`), where kloop can give them to it.
pub fn volume_group(pod: &LocalPod) -> Option<u32> {
    let group = pod.spec.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok().filter(|_| pod.world.settings.runs_as.0 == 0)
}

/// Returns the user that owns the tokens of a pod: the one of all its containers, where kloop can give files to it (Kubernetes:
/// pkg/volume/util, FsUserFrom).
pub fn token_user(pod: &LocalPod) -> Option<u32> {
    let shared = pod.spec.security_context.as_ref().and_then(|shared| shared.run_as_user);
    let own = |member: &PodContainer| member.spec.security_context.as_ref().and_then(|own| own.run_as_user).or(shared);
    let first = own(pod.members.first()?)?;
    let user = u32::try_from(first).ok().filter(|_| pod.world.settings.runs_as.0 == 0)?;
    pod.members.iter().all(|member| own(member) == Some(first)).then_some(user)
}

const AS_ROOT: &str = "container has runAsNonRoot and image will run as root";

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use crate::world::ContainerUser;
    use crate::world::volume::VolumeContent;
    use serde_json::{Value, json};

    fn start(runs_as: (u32, u32), of_pod: Value, own: Value) -> Result<Option<ContainerUser>, String> {
        let container = json!({"name": "c", "image": "a", "securityContext": own});
        let mut machine = TestMachine::new(pod(json!({"securityContext": of_pod, "containers": [container]})));
        machine.world.settings.runs_as = runs_as;
        machine.settle();
        match machine.starts.pop() {
            Some(start) => Ok(start.user),
            None => {
                let waiting = machine.container("c")["state"]["waiting"].clone();
                assert_eq!(waiting["reason"], "CreateContainerConfigError");
                Err(waiting["message"].as_str().unwrap_or_default().to_owned())
            }
        }
    }

    #[test]
    fn container_security_context_overrides_that_of_its_pod() {
        assert_eq!(start((0, 0), json!({}), json!({})), Ok(None));
        let found =
            start((0, 0), json!({"runAsUser": 7, "fsGroup": 9, "supplementalGroups": [8]}), json!({"runAsUser": 5}));
        assert_eq!(
            found,
            Ok(Some(ContainerUser { user: Some(5), group: None, groups: vec![8, 9], files: Some(9), strict: false }))
        );
    }

    #[test]
    fn token_belongs_to_the_user_of_all_containers() {
        let token = |runs_as: (u32, u32), of_pod: Value, own: [Value; 2]| {
            let [init, main] = own;
            let source = json!({"serviceAccountToken": {"path": "token"}});
            let mut machine = TestMachine::new(pod(json!({
                "securityContext": of_pod,
                "initContainers": [{"name": "i", "image": "a", "securityContext": init}],
                "containers": [{"name": "c", "image": "a", "securityContext": main}],
                "volumes": [{"name": "v", "projected": {"sources": [source]}}],
            })));
            machine.world.settings.runs_as = runs_as;
            machine.settle();
            let files = &machine.starts[0].files.volumes;
            let VolumeContent::Files(files) = &files.iter().find(|volume| &*volume.name == "v").unwrap().source else {
                panic!("{files:?}")
            };
            (files[0].user, files[0].group, files[0].mode)
        };
        let user = |user: u32| json!({"runAsUser": user});
        let root = (0, 0);
        assert_eq!(token(root, json!({}), [json!({}), json!({})]), (None, None, 0o644));
        assert_eq!(token(root, user(7), [json!({}), json!({})]), (Some(7), None, 0o600));
        assert_eq!(token(root, user(7), [user(8), user(8)]), (Some(8), None, 0o600));
        assert_eq!(token(root, user(7), [json!({}), user(8)]), (None, None, 0o644));
        assert_eq!(token(root, json!({}), [json!({}), user(8)]), (None, None, 0o644));
        let both = json!({"runAsUser": 7, "fsGroup": 9});
        assert_eq!(token(root, both, [json!({}), json!({})]), (Some(7), Some(9), 0o640));
        assert_eq!(token((7, 7), user(7), [json!({}), json!({})]), (None, None, 0o644));
    }

    #[test]
    fn ordinary_user_runs_no_other_users_processes() {
        assert_eq!(start((5, 6), json!({"runAsUser": 5, "runAsGroup": 6, "fsGroup": 6}), json!({})), Ok(None));
        let table = [
            (json!({"runAsUser": 7}), "runAsUser 7"),
            (json!({"runAsUser": 0}), "runAsUser 0"),
            (json!({"runAsGroup": 7}), "runAsGroup 7"),
            (json!({"fsGroup": 7}), "fsGroup 7"),
            (json!({"supplementalGroups": [6, 8]}), "supplementalGroups 8"),
        ];
        for (context, told) in table {
            let why = start((5, 6), context, json!({})).expect_err(told);
            assert!(why.starts_with(&format!("{told}: kloop runs as user 5 (group 6), and only root")), "{why}");
        }
    }

    #[test]
    fn non_root_is_checked() {
        assert_eq!(start((5, 6), json!({"runAsNonRoot": true}), json!({})), Ok(None));
        assert!(start((0, 0), json!({"runAsNonRoot": true}), json!({"runAsUser": 4})).is_ok());
        assert!(start((0, 0), json!({"runAsNonRoot": true}), json!({})).expect_err("root").starts_with(
            "container has runAsNonRoot and image will run as root (pod: \"p_default(uid-p)\", container: c)"
        ));
        let written = start((0, 0), json!({"runAsNonRoot": true}), json!({"runAsUser": 0})).expect_err("root");
        assert_eq!(written, "container's runAsUser breaks non-root policy (pod: \"p_default(uid-p)\", container: c)");
    }
}
