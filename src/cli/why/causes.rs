//! `kloop why` without a name: one line for each root cause.

use super::{coloured, one_line};
use crate::diagnosis::why::{CauseChain, CauseLink, ConvergenceState};
use crate::show::escape;
use colored::Colorize;

/// The most names of objects on one line; the others are counted.
const NAMED: usize = 3;

/// A root cause, and the objects that it keeps from being as they were asked for.
struct Cause<'a> {
    standing: ConvergenceState,
    link: &'a CauseLink,
    next: String,
    about: Vec<&'a str>,
}

/// One line for each root cause, those first that are stuck. Without a control plane nothing else matters, and nothing else is said.
pub fn lines(answers: &[CauseChain]) -> String {
    if let Some(plane) = answers.iter().find_map(CauseChain::missing_control_plane) {
        let next = plane.next.clone().unwrap_or_default();
        return line(&Cause { standing: plane.standing, link: plane, next: format!("run: {next}"), about: Vec::new() });
    }
    let mut causes: Vec<Cause<'_>> = Vec::new();
    for answer in answers {
        let Some(link) = root(answer) else { continue };
        match causes.iter_mut().find(|cause| cause.standing == answer.standing() && is_same(cause.link, link)) {
            Some(cause) => cause.about.push(&answer.about),
            None => causes.push(Cause {
                standing: answer.standing(),
                link,
                next: answer.next(),
                about: vec![&answer.about],
            }),
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.standing));
    causes.iter().map(line).collect()
}

/// The link on which the others wait: the one that is stuck, else the last one that is on its way.
fn root(answer: &CauseChain) -> Option<&CauseLink> {
    let on_its_way = || answer.links.iter().rev().find(|link| link.standing == ConvergenceState::Converging);
    answer.root_cause().or_else(on_its_way).or(answer.links.get(answer.place))
}

/// Whether two links tell of one cause. A program that failed by itself is a cause of its own, whatever others say.
fn is_same(one: &CauseLink, other: &CauseLink) -> bool {
    let said = |link: &CauseLink| (link.seen.clone(), link.wanted.clone(), link.error.clone());
    let is_program = one.log.is_some() || other.log.is_some();
    said(one) == said(other) && !is_program && one.by == other.by
}

fn line(cause: &Cause<'_>) -> String {
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
        (coloured(cause.standing), escaped(&what), escaped(&seen), escaped(&format!("next: {}", cause.next)));
    format!("{word} {what}: {seen}; {}\n", next.bold())
}

/// `deployment/a, deployment/b, deployment/c and 2 more`.
fn names(about: &[&str]) -> String {
    let shown = about.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match about.len().checked_sub(NAMED).filter(|more| *more > 0) {
        Some(more) => format!("{shown} and {more} more"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(about: &str, links: &[(&str, ConvergenceState, &str)]) -> CauseChain {
        let link = |(what, standing, seen): &(&str, ConvergenceState, &str)| {
            let mut link = CauseLink::default();
            (link.what, link.seen, link.standing) = ((*what).to_owned(), (*seen).to_owned(), *standing);
            (link.next, link.by) = (Some("mend it".to_owned()), "kubelet");
            link
        };
        CauseChain { about: about.to_owned(), links: links.iter().map(link).collect(), place: 0 }
    }

    #[test]
    fn one_root_cause_is_one_line() {
        use ConvergenceState::{Converging, Stuck};
        let stuck =
            |name: &str| answer(name, &[(name, Converging, "0 ready"), ("container app", Stuck, "no image a:1")]);
        let moving = answer("deployment/slow", &[("deployment/slow", Converging, "1 of 2 ready")]);
        let answers =
            [moving, stuck("deployment/a"), stuck("deployment/b"), stuck("deployment/c"), stuck("deployment/d")];
        colored::control::set_override(false);
        assert_eq!(
            lines(&answers),
            "stuck      deployment/a, deployment/b, deployment/c and 1 more: container app: no image a:1; next: mend it\n\
             converging deployment/slow: 1 of 2 ready; next: mend it\n"
        );
    }

    #[test]
    fn programs_that_fail_are_causes_of_their_own() {
        let of = |name: &str| {
            let mut answer = answer(name, &[("container app", ConvergenceState::Stuck, "CrashLoopBackOff")]);
            answer.links[0].log = Some(("uid".into(), "app".into()));
            answer
        };
        assert_eq!(lines(&[of("deployment/a"), of("deployment/b")]).lines().count(), 2);
    }

    #[test]
    fn without_a_control_plane_it_says_only_that() {
        let plane = ("control plane", ConvergenceState::Stuck, "none runs");
        let of = |name: &str| answer(name, &[plane, (name, ConvergenceState::Stuck, "0 ready")]);
        colored::control::set_override(false);
        assert_eq!(
            lines(&[of("deployment/a"), of("pod/b")]),
            "stuck      control plane: none runs; next: run: mend it\n"
        );
    }
}
