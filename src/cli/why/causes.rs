//! `kloop why` without a name: one line for each root cause.

use super::{coloured, one_line};
use crate::diagnosis::why::{CauseChain, CauseLink, ConvergenceState, UnavailablePort};
use crate::show::escape;
use colored::Colorize;

/// Most names of objects on one line; the others are counted.
const MAX_NAMED_OBJECTS: usize = 3;

/// A root cause, and the objects that have not converged because of it.
struct CauseLine<'a> {
    state: ConvergenceState,
    link: &'a CauseLink,
    next: String,
    about: Vec<&'a str>,
}

/// Returns one line for each root cause, stuck ones first. A missing control plane is the only
/// cause, because nothing changes without it.
pub fn lines(answers: &[CauseChain]) -> String {
    if let Some(plane) = answers.iter().find_map(CauseChain::missing_control_plane) {
        let next = plane.next.clone().unwrap_or_default();
        return line(&CauseLine { state: plane.state, link: plane, next: format!("run: {next}"), about: Vec::new() });
    }
    let mut causes: Vec<CauseLine<'_>> = Vec::new();
    for answer in answers {
        let Some(link) = root(answer) else { continue };
        match causes.iter_mut().find(|cause| cause.state == answer.state() && is_same(cause.link, link)) {
            Some(cause) => cause.about.push(&answer.about),
            None => {
                causes.push(CauseLine { state: answer.state(), link, next: answer.next(), about: vec![&answer.about] })
            }
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.state));
    causes.iter().map(line).collect()
}

/// Returns a line for each port that does not lead to its object.
pub fn port_lines(ports: &[UnavailablePort]) -> String {
    let word = format!("{:10}", "warning").yellow();
    let line = |port: &UnavailablePort| {
        format!("{word} {}: {}\n", escape::text(&port.about), escape::text(&one_line(&port.message)))
    };
    ports.iter().map(line).collect()
}

/// Returns the link that the others wait for: the stuck one, else the last converging one.
fn root(answer: &CauseChain) -> Option<&CauseLink> {
    let converging = || answer.links.iter().rev().find(|link| link.state == ConvergenceState::Converging);
    answer.root_cause().or_else(converging).or(answer.links.get(answer.place))
}

/// Whether two links have the same cause. A failed program is always its own cause.
fn is_same(one: &CauseLink, other: &CauseLink) -> bool {
    let state = |link: &CauseLink| (link.seen.clone(), link.wanted.clone(), link.error.clone());
    let is_program = one.log.is_some() || other.log.is_some();
    state(one) == state(other) && !is_program && one.by == other.by && one.prerequisite == other.prerequisite
}

fn line(cause: &CauseLine<'_>) -> String {
    let mut what = names(&cause.about);
    if cause.about.first() != Some(&cause.link.what.as_str()) {
        what = if what.is_empty() { cause.link.what.clone() } else { format!("{what}: {}", cause.link.what) };
    }
    let mut seen = cause.link.seen.clone();
    if let Some(error) = &cause.link.error {
        seen.push_str(&format!("; {error}"));
    }
    let escaped = |text: &str| escape::text(&one_line(text));
    let (word, what, seen, next) =
        (coloured(cause.state), escaped(&what), escaped(&seen), escaped(&format!("next: {}", cause.next)));
    format!("{word} {what}: {seen}; {}\n", next.bold())
}

/// Returns `deployment/a, deployment/b, deployment/c and 2 more`.
fn names(about: &[&str]) -> String {
    let shown = about.iter().take(MAX_NAMED_OBJECTS).copied().collect::<Vec<_>>().join(", ");
    match about.len().checked_sub(MAX_NAMED_OBJECTS).filter(|more| *more > 0) {
        Some(more) => format!("{shown} and {more} more"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(about: &str, links: &[(&str, ConvergenceState, &str)]) -> CauseChain {
        let link = |(what, state, seen): &(&str, ConvergenceState, &str)| {
            let mut link = CauseLink::default();
            (link.what, link.seen, link.state) = ((*what).to_owned(), (*seen).to_owned(), *state);
            (link.next, link.by) = (Some("fix it".to_owned()), "kubelet");
            link
        };
        CauseChain { about: about.to_owned(), links: links.iter().map(link).collect(), place: 0 }
    }

    #[test]
    fn objects_with_one_root_cause_share_a_line() {
        use ConvergenceState::{Converging, Stuck};
        let stuck =
            |name: &str| answer(name, &[(name, Converging, "0 ready"), ("container app", Stuck, "no image a:1")]);
        let moving = answer("deployment/slow", &[("deployment/slow", Converging, "1 of 2 ready")]);
        let answers =
            [moving, stuck("deployment/a"), stuck("deployment/b"), stuck("deployment/c"), stuck("deployment/d")];
        colored::control::set_override(false);
        assert_eq!(
            lines(&answers),
            "stuck      deployment/a, deployment/b, deployment/c and 1 more: container app: no image a:1; next: fix it\n\
             converging deployment/slow: 1 of 2 ready; next: fix it\n"
        );
    }

    #[test]
    fn failed_programs_are_separate_causes() {
        let of = |name: &str| {
            let mut answer = answer(name, &[("container app", ConvergenceState::Stuck, "CrashLoopBackOff")]);
            answer.links[0].log = Some(("uid".into(), "app".into()));
            answer
        };
        assert_eq!(lines(&[of("deployment/a"), of("deployment/b")]).lines().count(), 2);
    }

    #[test]
    fn missing_control_plane_is_the_only_cause() {
        let plane = ("control plane", ConvergenceState::Stuck, "not running");
        let of = |name: &str| answer(name, &[plane, (name, ConvergenceState::Stuck, "0 ready")]);
        colored::control::set_override(false);
        assert_eq!(
            lines(&[of("deployment/a"), of("pod/b")]),
            "stuck      control plane: not running; next: run: fix it\n"
        );
    }
}
