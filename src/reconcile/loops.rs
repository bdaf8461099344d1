//! The loops that run, in the order in which they are asked.

use crate::world::Loop;
use crate::{controllers, kubelet, network, scheduler};

/// Every loop: policies and the routes of Services, the controllers, the scheduler, the kubelet.
pub fn all() -> Vec<&'static Loop> {
    // Routes first: at a start, what runs already is to be found before anything new is made.
    let mut all: Vec<&'static Loop> = network::ALL.to_vec();
    all.extend(controllers::ALL);
    all.extend([&scheduler::LOOP, &kubelet::IMAGES, &kubelet::PRESSURE, &kubelet::LOOP]);
    all
}

/// The controllers that a list enables, by names as `verbose` lines show them: `*` for all, `NAME` for one, `-NAME` for all but it
/// (kube-controller-manager's `--controllers`); every other loop runs in any case. The error is the name that none has.
pub fn chosen(list: &[String]) -> Result<Vec<&'static Loop>, String> {
    let is_controller = |each: &Loop| controllers::ALL.iter().any(|one| one.name == each.name);
    let name = |word: &str| word.strip_prefix('-').unwrap_or(word).to_owned();
    let known = |name: &str| name == "*" || controllers::ALL.iter().any(|one| one.name == name);
    if let Some(unknown) = list.iter().map(|word| name(word)).find(|word| !known(word)) {
        return Err(unknown);
    }
    let says = |word: &str| list.iter().any(|one| one == word);
    let runs = |each: &Loop| !says(&format!("-{}", each.name)) && (says("*") || says(each.name));
    Ok(all().into_iter().filter(|each| !is_controller(each) || runs(each)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let count = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|word| (*word).to_owned()).collect();
            chosen(&list).map(|loops| all().len() - loops.len())
        };
        let most = controllers::ALL.len();
        assert_eq!(count(&["*"]), Ok(0));
        assert_eq!(count(&["*", "-job-controller"]), Ok(1));
        assert_eq!(count(&["job-controller"]), Ok(most - 1));
        assert_eq!(count(&["*", "-jobs"]), Err("jobs".into()));
    }
}
