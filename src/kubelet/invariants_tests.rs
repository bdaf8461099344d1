//! Invariants under lost orders, late, lost and repeated reports, restarts of the control plane, and reboots.

use super::LOOP;
use super::testing::{ContainerBehaviour, TestMachine, key, pod};
use crate::world::{Phase, Report, WriteVerb};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One random step between two plans.
#[derive(Clone, Debug)]
enum SimulatedChance {
    Seconds(i64),
    Ends(&'static str, i32),
    LosesOrders(usize),
    LosesReports,
    RepeatsReports,
    OldReport(&'static str, u32),
    Restarts,
    Reboots,
    Deletes(i64),
}

fn chance() -> impl Strategy<Value = SimulatedChance> {
    let name = prop_oneof![Just("i"), Just("s"), Just("c")];
    prop_oneof![
        8 => (0..40i64).prop_map(SimulatedChance::Seconds),
        4 => (name.clone(), 0..2i32).prop_map(|(name, code)| SimulatedChance::Ends(name, code)),
        2 => (1..3usize).prop_map(SimulatedChance::LosesOrders),
        2 => Just(SimulatedChance::LosesReports),
        2 => Just(SimulatedChance::RepeatsReports),
        2 => (name, 0..3u32).prop_map(|(name, attempt)| SimulatedChance::OldReport(name, attempt)),
        2 => Just(SimulatedChance::Restarts),
        1 => Just(SimulatedChance::Reboots),
        1 => (0..30i64).prop_map(SimulatedChance::Deletes),
    ]
}

/// Checks that attempts and states never repeat or go back.
#[derive(Default)]
struct InvariantChecker {
    restarts: BTreeMap<String, i64>,
    ended: Option<Value>,
}

impl InvariantChecker {
    fn look(&mut self, machine: &TestMachine) {
        let Some(row) = machine.world.get(&key("p")) else { return };
        let object = row.object();
        for list in ["initContainerStatuses", "containerStatuses"] {
            for one in object.items(&["status", list]) {
                let known = self.restarts.entry(one["name"].to_string()).or_default();
                let count = one["restartCount"].as_i64().unwrap();
                assert!(count >= *known, "the restart count fell: {object:?}");
                *known = count;
            }
        }
        if let Some(ended) = &self.ended {
            assert_eq!(&object.0["status"]["phase"], ended, "a final phase stays");
        }
        if row.pod().unwrap().phase.is_terminal() {
            self.ended = Some(object.0["status"]["phase"].clone());
        }
    }
}

fn happens(machine: &mut TestMachine, chance: &SimulatedChance) {
    match chance {
        SimulatedChance::Seconds(seconds) => {
            let to = machine.second() + seconds;
            machine.run_to(to);
        }
        SimulatedChance::Ends(name, code) => machine.end_now(name, *code),
        SimulatedChance::LosesOrders(count) => machine.lost_orders += count,
        SimulatedChance::LosesReports => machine.lose_reports(),
        SimulatedChance::RepeatsReports => machine.deliver_reports_twice(),
        SimulatedChance::OldReport(name, attempt) => machine.repeat(name, *attempt),
        SimulatedChance::Restarts => machine.restart(),
        SimulatedChance::Reboots => machine.reboot(),
        SimulatedChance::Deletes(grace) => {
            let is_alive = machine.world.get(&key("p")).is_some_and(|row| row.deletion.is_none());
            if is_alive {
                machine.delete(*grace);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The simulated machine asserts that no start arrives while another attempt runs, and that each plan settles.
    #[test]
    fn pod_settles_after_any_events(policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
                                   chances in prop::collection::vec(chance(), 1..25)) {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "a"}], "initContainers": [
            {"name": "i", "image": "a"}, {"name": "s", "image": "a", "restartPolicy": "Always"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.set_behaviour("i", ContainerBehaviour::Exit(1, 0));
        let mut checker = InvariantChecker::default();
        for chance in &chances {
            happens(&mut machine, chance);
            machine.settle();
            checker.look(&machine);
        }
        machine.lost_orders = 0;
        let to = machine.second() + 2000;
        machine.run_to(to);
        checker.look(&machine);
        let writes = machine.writes;
        machine.run_to(to + 2000);
        prop_assert_eq!(machine.writes, writes, "it stays settled");
        match machine.world.get(&key("p")).map(|row| row.pod().unwrap().phase) {
            None => prop_assert!(machine.world.facts.pods.get("uid-p").is_none(), "nothing is left of it"),
            Some(Phase::Running) => prop_assert_eq!(machine.condition("Ready"), "True"),
            Some(phase) => prop_assert!(phase.is_terminal(), "{phase:?}: {}", machine.summary()),
        }
    }
}

#[test]
fn attempt_whose_order_was_lost_is_ordered_again_under_its_number() {
    let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
    let plan = (LOOP.plan)(&machine.world, &key("p"));
    let WriteVerb::Status(object) = plan.writes[0].verb.clone() else { panic!("{plan:?}") };
    assert!(matches!(&plan.writes[1].verb, WriteVerb::Attempt { attempt: 0, .. }), "committed with the status");
    assert!(object.text(&["status", "podIP"]).is_some(), "and with the address");
    // The control plane crashes between the commit and the start.
    machine.put("pods", machine.with_status(&object).0);
    machine.settle();
    assert_eq!(machine.take_messages(), ["0 start c#0"]);
    assert_eq!(machine.summary(), "Running c+=running/0");
}

#[test]
fn staged_effects_are_not_ordered_twice() {
    let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
    let plan = (LOOP.plan)(&machine.world, &key("p"));
    let WriteVerb::Status(object) = plan.writes[0].verb.clone() else { panic!("{plan:?}") };
    let staged = machine.with_status(&object);
    machine.world.stage(key("p"), Some(staged));
    let again = (LOOP.plan)(&machine.world, &key("p"));
    assert!(again.is_empty(), "{again:?}");
    assert!(again.wake.is_some());
}

#[test]
fn exit_and_the_next_attempt_are_one_commit() {
    let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
    machine.run_to(5);
    machine.end_now("c", 9);
    machine.deliver();
    let plan = (LOOP.plan)(&machine.world, &key("p"));
    let WriteVerb::Status(object) = &plan.writes[0].verb else { panic!("{plan:?}") };
    let told = &object.0["status"]["containerStatuses"][0];
    assert_eq!((&told["restartCount"], &told["lastState"]["terminated"]["exitCode"]), (&json!(1), &json!(9)));
    assert!(matches!(&plan.writes[1].verb, WriteVerb::Attempt { attempt: 1, .. }));
}

#[test]
fn only_pods_of_our_nodes_and_only_after_the_inventory() {
    let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
    machine.world.facts.inventory_complete = false;
    assert!((LOOP.plan)(&machine.world, &key("p")).is_empty());
    machine.world.facts.inventory_complete = true;
    machine.world.facts.nodes.get_mut("n").unwrap().ours = false;
    assert!((LOOP.plan)(&machine.world, &key("p")).is_empty());
}

#[test]
fn late_report_of_an_old_attempt_changes_nothing() {
    let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
    machine.set_behaviour("c", ContainerBehaviour::Exit(1, 1)).run_to(1);
    machine.set_behaviour("c", ContainerBehaviour::Stay).run_to(15);
    let status = machine.status();
    machine.repeat("c", 0);
    machine.report(Report::Removed { pod_uid: "nobody".into() });
    machine.settle();
    assert_eq!(machine.status(), status);
}
