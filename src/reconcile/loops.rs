//! The loops that run, in the order in which they plan.

use crate::world::Loop;
use crate::{controllers, kubelet, network, scheduler};

/// Every loop: policies and the routes of Services, the controllers, the scheduler, the kubelet.
pub fn all_loops() -> Vec<&'static Loop> {
    // Routes first: after a start of the control plane, running pods get their routes back before anything new is made.
    let mut all: Vec<&'static Loop> = network::ALL.to_vec();
    all.extend(controllers::ALL);
    all.extend([&scheduler::LOOP, &kubelet::IMAGES, &kubelet::PRESSURE, &kubelet::LOOP]);
    all
}

/// The loops of a node whose control plane is elsewhere.
pub fn node_loops() -> Vec<&'static Loop> {
    let mut all: Vec<&'static Loop> = network::ALL.to_vec();
    all.extend([&kubelet::IMAGES, &kubelet::PRESSURE, &kubelet::LOOP]);
    all
}

/// The loops of a machine's node where another machine leads. Images are built by the leader alone.
pub fn standby_loops() -> Vec<&'static Loop> {
    node_loops().into_iter().filter(|each| each.name != kubelet::IMAGES.name).collect()
}

/// The controllers that a list enables (kube-controller-manager's `--controllers`): `*` for all, `NAME` for one, `-NAME` for all but it,
/// by names as `verbose` lines show them, with or without the ending `-controller`. Every other loop always runs. The error names what
/// is not a controller, and lists the controllers.
pub fn enabled_loops(list: &[String]) -> Result<Vec<&'static Loop>, String> {
    let is_controller = |each: &Loop| controllers::ALL.iter().any(|one| one.name == each.name);
    let is_meant = |word: &str, name: &str| word == name || word == short(name);
    let known = |word: &str| word == "*" || controllers::ALL.iter().any(|one| is_meant(word, one.name));
    let unknown = list.iter().map(|word| word.strip_prefix('-').unwrap_or(word)).find(|word| !known(word));
    if let Some(unknown) = unknown {
        let names: Vec<&str> = controllers::ALL.iter().map(|one| short(one.name)).collect();
        let names = names.join(", ");
        if all_loops().iter().any(|each| is_meant(unknown, each.name)) {
            return Err(format!("{unknown:?} always runs, only controllers can be left out: {names}"));
        }
        return Err(format!("{unknown:?} is not in the list of known controllers: {names}"));
    }
    let runs = |each: &Loop| {
        let is_out = |word: &String| word.strip_prefix('-').is_some_and(|word| is_meant(word, each.name));
        let is_in = |word: &String| word == "*" || is_meant(word, each.name);
        !list.iter().any(is_out) && list.iter().any(is_in)
    };
    Ok(all_loops().into_iter().filter(|each| !is_controller(each) || runs(each)).collect())
}

/// The names of the controllers that are not among these loops.
pub fn disabled_controllers(chosen: &[&Loop]) -> Vec<&'static str> {
    let runs = |name: &str| chosen.iter().any(|each| each.name == name);
    controllers::ALL.iter().map(|each| each.name).filter(|name| !runs(name)).collect()
}

/// A controller's name without its ending.
fn short(name: &str) -> &str {
    name.strip_suffix("-controller").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let count = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|word| (*word).to_owned()).collect();
            enabled_loops(&list).map(|loops| all_loops().len() - loops.len())
        };
        let most = controllers::ALL.len();
        assert_eq!(count(&["*"]), Ok(0));
        assert_eq!(count(&["*", "-job-controller"]), Ok(1));
        assert_eq!(count(&["job-controller"]), Ok(most - 1));
        assert_eq!(count(&["*", "-job"]), Ok(1));
        assert_eq!(count(&["*", "-job", "-cronjob-controller"]), Ok(2));
        assert_eq!(count(&["job", "deployment"]), Ok(most - 2));
        let refused = count(&["*", "-jobs"]).unwrap_err();
        assert!(refused.starts_with("\"jobs\" is not in the list of known controllers: "), "{refused}");
        assert_eq!(disabled_controllers(&enabled_loops(&["*".into(), "-job".into()]).unwrap()), ["job-controller"]);
        assert!(disabled_controllers(&all_loops()).is_empty());
        for name in ["kubelet", "default-scheduler", "kube-proxy", "networkpolicy", "image-controller"] {
            let refused = count(&["*", &format!("-{name}")]).unwrap_err();
            let words = format!("{name:?} always runs, only controllers can be left out: ");
            assert!(refused.starts_with(&words) && refused.contains(" job, "), "{refused}");
        }
        assert!(refused.contains(" job, ") && refused.contains(" deployment, "), "{refused}");
    }
}
