//! Decides the next action for each container: init containers and sidecars in order, then the main containers. Sidecars keep running.

use super::actions::{ContainerAction, PodActions};
use super::pod::{AttemptState, ContainerRole, LocalPod, PodContainer};
use super::restart_all::restarts;
use super::restart_policy::has_changed;
use super::{
    address, backoff, builds, container_status, deadlines, devices, eviction, hooks, hostname, image, probes, resize,
    restart_all, simulated_pod, start, termination, volumes,
};
use crate::object::time::Shift;
use crate::world::{Effect, Plan, WriteVerb};
use jiff::SignedDuration;

/// An order that is not answered within this time is repeated. The attempt's number in it makes a repetition harmless.
const START_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// Decides about every container of a pod.
pub fn decide(pod: &LocalPod) -> PodActions {
    let mut order = compute_actions(pod);
    hooks::delay_stops(pod, &mut order);
    order
}

/// Adds the attempts to commit and the effects to carry out after the commit. A simulated pod gets no effects.
pub fn carry_out(order: PodActions, pod: &LocalPod, plan: &mut Plan) {
    if pod.is_simulated {
        return;
    }
    for (member, step) in pod.members.iter().zip(order.steps) {
        match step {
            ContainerAction::Start(start) => {
                let (container, attempt) = (start.container.clone(), start.attempt);
                let why = format!("attempt {attempt} of container {container} is about to be started");
                plan.write(WriteVerb::Attempt { pod_uid: pod.row.uid.clone(), container, attempt }, why);
                plan.effects.push(Effect::Start(start));
            }
            ContainerAction::Stop { grace, .. } => plan.effects.push(Effect::Stop {
                pod_uid: pod.row.uid.clone(),
                container: member.spec.name.as_str().into(),
                attempt: member.attempt,
                grace_seconds: grace,
            }),
            ContainerAction::PreStop { grace, .. } => hooks::order_pre_stop(pod, member, grace, plan),
            ContainerAction::Keep
            | ContainerAction::Renew
            | ContainerAction::Misconfigured(_)
            | ContainerAction::BackOff { .. } => {}
        }
    }
    hooks::order_hooks(pod, plan);
    probes::order_probes(pod, plan);
    eviction::watch_storage(pod, plan);
    resize::order_resizes(pod, plan);
    let Some(ip) = &order.ip.filter(|_| !termination::is_ending(pod)) else { return };
    builds::order_builds(pod, ip, plan);
    volumes::order_refresh(pod, ip, plan);
}

fn compute_actions(pod: &LocalPod) -> PodActions {
    let mut order = PodActions::keep_all(pod);
    order.ip = address::pod_address(pod);
    if termination::is_ending(pod) || pod.is_closing() {
        termination::decide(pod, &mut order);
        return order;
    }
    order.wakes.extend(deadlines::end(pod));
    order.wakes.extend(simulated_pod::next_wake(pod));
    order.wakes.extend(volumes::token_renewal(pod).filter(|_| !pod.is_simulated));
    if restart_all::decide(pod, &mut order) {
        return order;
    }
    order.blocked = match &order.ip {
        None => Some(address::exhausted(pod)),
        Some(_) => hostname::unnameable(pod).or_else(|| volumes::missing(pod)).or_else(|| devices::unprepared(pod)),
    };
    for (place, member) in pod.members.iter().enumerate() {
        if let Some(step) =
            hooks::failed(pod, member).or_else(|| probes::failed(pod, member)).or_else(|| changed(pod, member))
        {
            order.steps[place] = step;
        }
    }
    if order.blocked.is_none() {
        for place in candidates(pod) {
            step(pod, place, &mut order);
        }
    }
    order
}

/// The containers whose turn it is, by their place: they run, or may be started.
fn candidates(pod: &LocalPod) -> Vec<usize> {
    let mut turn = Vec::new();
    let main_ran = pod.with_role(ContainerRole::Main).any(has_run);
    for (place, member) in pod.members.iter().enumerate() {
        let passed = match member.role {
            // Once main containers have been started, init containers do not run again.
            ContainerRole::Init if main_ran => continue,
            ContainerRole::Init => member.is_done(),
            ContainerRole::Sidecar => main_ran || probes::is_started(member) || is_followed(&pod.members[place + 1..]),
            ContainerRole::Main => true,
            ContainerRole::Ephemeral => continue,
        };
        if !(member.role == ContainerRole::Init && passed) {
            turn.push(place);
        }
        if !passed {
            break;
        }
    }
    // Ephemeral containers also start in a pod whose init containers do not finish.
    turn.extend((0..pod.members.len()).filter(|place| pod.members[*place].role == ContainerRole::Ephemeral));
    turn
}

/// Whether an init container after a sidecar has run. Then the sidecar was started before, and its restart delays no later container.
fn is_followed(later: &[PodContainer]) -> bool {
    later.iter().any(|member| member.role.is_init() && has_run(member))
}

/// Whether anything of the container has run. An attempt that restarts together with all containers does not count.
fn has_run(member: &PodContainer) -> bool {
    member.facts.is_some() && member.state != AttemptState::New
}

fn step(pod: &LocalPod, place: usize, order: &mut PodActions) {
    let member = &pod.members[place];
    let now = pod.world.now;
    let settings = &pod.world.settings;
    match &member.state {
        AttemptState::New => start(pod, place, member.attempt, order),
        AttemptState::Starting { since } if now.duration_since(*since) >= START_TIMEOUT => {
            start(pod, place, member.attempt, order)
        }
        AttemptState::Starting { since } => order.wakes.push(since.later(START_TIMEOUT)),
        AttemptState::Refused { at, .. } => {
            let refusals = member.facts.as_ref().map_or(1, |facts| facts.refusals);
            let due = at.later(SignedDuration::from_secs(backoff::image(settings, refusals)));
            order.wakes.extend(backoff::error_fades(*at).filter(|fades| *fades > now));
            if due > now && !image::is_repaired(pod, member) {
                order.wakes.push(due)
            } else {
                start(pod, place, member.attempt, order)
            }
        }
        AttemptState::Ended(_) if member.role.is_init() && member.facts.is_none() => {
            start(pod, place, member.attempt + 1, order)
        }
        AttemptState::Ended(ended) if restarts(pod, member) => {
            let seconds = match member.was_closed() {
                true => 0,
                // The program changed, so earlier exits do not count.
                false if image::with_new_sources(pod, member).is_some() || image::is_repaired(pod, member) => 0,
                false => backoff::restart(settings, member.attempt, ended, member.last.as_ref()),
            };
            let due = ended.finished.later(SignedDuration::from_secs(seconds));
            if due > now {
                order.steps[place] = ContainerAction::BackOff { seconds, due };
                order.wakes.extend(container_status::end_fades(pod, ended));
                order.wakes.push(due);
            } else {
                start(pod, place, member.attempt + 1, order);
            }
        }
        AttemptState::Ended(_) | AttemptState::Running { .. } => {}
    }
}

/// Stops a container whose image was changed in the spec, so that its next attempt runs the new one.
fn changed(pod: &LocalPod, member: &PodContainer) -> Option<ContainerAction> {
    let stopping = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some());
    let runs = matches!(member.state, AttemptState::Running { .. }) && !stopping && !pod.is_simulated;
    if !runs {
        return None;
    }
    let name = &member.spec.name;
    let sources = || {
        let image = image::with_new_program(pod, member)?;
        Some(format!("Container {name}: watched files of Image {image} have changed, will be restarted"))
    };
    let resized = || resize::wants_restart(pod, member).then(|| format!("Container {name} resize requires restart"));
    let image = || has_changed(member).then(|| format!("Container {name} definition changed, will be restarted"));
    let event = sources().or_else(image).or_else(resized)?;
    Some(ContainerAction::Stop { grace: pod.grace_seconds(), event: Some(event) })
}

/// Orders an attempt, unless it was ordered in this tick already: then its effect waits for the commit.
fn start(pod: &LocalPod, place: usize, attempt: u32, order: &mut PodActions) {
    let member = &pod.members[place];
    let Some(ip) = &order.ip else { return };
    let ordered = attempt == member.attempt && member.state == AttemptState::New && member.was_configured();
    if pod.is_staged() && ordered {
        order.wakes.push(pod.world.now.later(SignedDuration::from_secs(1)));
        return;
    }
    if image::awaits_sources(pod, member) {
        return;
    }
    order.steps[place] = match start::build(pod, member, attempt, ip) {
        Ok(start) => ContainerAction::Start(Box::new(start)),
        Err(missing) => ContainerAction::Misconfigured(missing),
    };
}

#[cfg(test)]
mod tests {
    use super::super::LOOP;
    use super::super::testing::{ContainerBehaviour, TestMachine, key, pod};
    use crate::world::WriteVerb;
    use serde_json::json;

    #[test]
    fn pod_comes_to_run_and_is_then_quiet() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a:1"}]})));
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
        assert_eq!(machine.condition("Ready"), "True");
        assert_eq!(machine.reasons(), ["Pulled", "Created", "Started"]);
        let writes = machine.writes;
        machine.run_to(10_000);
        assert_eq!(machine.writes, writes, "quiet when right");
        assert_eq!(machine.starts.len(), 1);
    }

    #[test]
    fn planned_starts_are_not_planned_again() {
        let missing = json!([{"secretRef": {"name": "none"}}]);
        for (env, starts) in [(json!([]), 1), (missing, 0)] {
            let container = json!({"name": "c", "image": "a:1", "envFrom": env});
            let mut machine = TestMachine::new(pod(json!({"containers": [container]})));
            let plan = (LOOP.plan)(&machine.world, &key("p"));
            assert_eq!(plan.effects.len(), starts, "{env}");
            for write in plan.writes {
                if let WriteVerb::Status(object) = write.verb {
                    let staged = machine.with_status(&object);
                    machine.world.stage(key("p"), Some(staged));
                }
            }
            let again = (LOOP.plan)(&machine.world, &key("p"));
            assert_eq!((again.writes.len(), again.effects.len()), (0, 0), "{env}");
        }
    }

    #[test]
    fn crash_loop_by_kubernetes_clock() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a:1"}]})));
        machine.set_behaviour("c", ContainerBehaviour::Exit(1, 7)).run_to(1300);
        let starts: Vec<_> = machine.take_messages().into_iter().filter(|line| line.contains("start")).collect();
        let expected = [
            "0 start c#0",
            "1 start c#1",
            "12 start c#2",
            "33 start c#3",
            "74 start c#4",
            "155 start c#5",
            "316 start c#6",
            "617 start c#7",
            "918 start c#8",
            "1219 start c#9",
        ];
        assert_eq!(starts, expected);
        assert_eq!(machine.summary(), "Running c=CrashLoopBackOff/9");
        let message = "back-off 5m0s restarting failed container=c pod=p_default(uid-p)";
        assert_eq!(machine.container("c")["state"]["waiting"]["message"], message);
        assert_eq!(machine.container("c")["lastState"]["terminated"]["exitCode"], 7);
    }

    #[test]
    fn long_run_resets_the_backoff() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a:1"}]})));
        machine.set_behaviour("c", ContainerBehaviour::Exit(1, 1)).run_to(100);
        machine.set_behaviour("c", ContainerBehaviour::Exit(600, 1)).run_to(155);
        machine.take_messages();
        machine.set_behaviour("c", ContainerBehaviour::Exit(1, 1)).run_to(800);
        let starts: Vec<_> = machine.take_messages().into_iter().filter(|line| line.contains("start")).collect();
        assert_eq!(starts, ["755 start c#6", "766 start c#7", "787 start c#8"]);
    }

    #[test]
    fn phases_by_policy_and_exit() {
        let cases = [
            ("Always", 0, "Running c=CrashLoopBackOff/1"),
            ("Always", 3, "Running c=CrashLoopBackOff/1"),
            ("OnFailure", 0, "Succeeded c=Completed/0"),
            ("OnFailure", 3, "Running c=CrashLoopBackOff/1"),
            ("Never", 0, "Succeeded c=Completed/0"),
            ("Never", 3, "Failed c=Error/0"),
        ];
        for (policy, code, expected) in cases {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "a:1"}]});
            let mut machine = TestMachine::new(pod(spec));
            machine.set_behaviour("c", ContainerBehaviour::Exit(1, code)).run_to(5);
            assert_eq!(machine.summary(), expected, "{policy} {code}");
        }
    }

    #[test]
    fn new_image_restarts_the_container_whatever_the_policy() {
        for policy in ["Always", "Never"] {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "a:1"}]});
            let mut machine = TestMachine::new(pod(spec));
            machine.run_to(5);
            let mut changed = machine.pod();
            changed.0["spec"]["containers"][0]["image"] = "a:2".into();
            machine.put("pods", changed.0);
            machine.run_to(10);
            assert_eq!(machine.take_messages(), ["0 start c#0", "5 stop c in 30", "5 c ends 143", "5 start c#1"]);
            assert_eq!(machine.summary(), "Running c+=running/1", "{policy}");
            assert_eq!(machine.container("c")["image"], "a:2");
            let told = "Container c definition changed, will be restarted";
            assert!(machine.events.iter().any(|event| event.message == told));
        }
    }

    #[test]
    fn ephemeral_containers_start_once_whatever_the_others_do() {
        let stuck = json!([{"name": "i", "image": "a:1"}]);
        let spec = json!({"initContainers": stuck, "containers": [{"name": "c", "image": "a:1"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.run_to(5);
        let mut changed = machine.pod();
        changed.0["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "a:1"}]);
        machine.put("pods", changed.0);
        machine.set_behaviour("d", ContainerBehaviour::Exit(2, 3)).run_to(20);
        assert_eq!(machine.take_messages(), ["0 start i#0", "5 start d#0", "7 d ends 3"]);
        let status = machine.status()["ephemeralContainerStatuses"].clone();
        assert_eq!(status[0]["state"]["terminated"]["exitCode"], 3);
        assert_eq!((&status[0]["ready"], &status[0]["restartCount"]), (&json!(false), &json!(0)));
        assert_eq!(machine.condition("Initialized"), "ContainersNotInitialized");
        machine.reboot();
        machine.run_to(30);
        assert!(machine.take_messages().iter().all(|line| !line.contains("start d")), "once is once");
    }

    #[test]
    fn ready_pod_is_due_when_what_its_debug_container_waits_for_comes() {
        let wanted = [
            (
                "configmaps",
                json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "a"}}}]}),
            ),
            ("secrets", json!({"envFrom": [{"secretRef": {"name": "m"}}]})),
        ];
        for (resource, fields) in wanted {
            let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a:1"}]})));
            machine.run_to(5);
            let mut container = json!({"name": "d", "image": "a:1"});
            container.as_object_mut().unwrap().append(&mut fields.as_object().unwrap().clone());
            let mut changed = machine.pod();
            changed.0["spec"]["ephemeralContainers"] = json!([container]);
            machine.put("pods", changed.0);
            machine.run_to(10);
            assert_eq!(
                (machine.condition("Ready"), machine.take_messages().len()),
                ("True".into(), 1),
                "d has to wait"
            );
            machine.put(resource, json!({"metadata": {"name": "m", "namespace": "default"}, "data": {"a": "MQ=="}}));
            let row = machine.world.find(resource, "default", "m").unwrap().clone();
            assert_eq!((super::super::LOOP.concerns)(&machine.world, &row).len(), 1, "{resource}");
            machine.run_to(400);
            assert!(machine.take_messages().iter().any(|line| line.contains("start d#0")), "{resource}");
        }
    }

    #[test]
    fn exit_codes_may_have_rules_of_their_own() {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        let container = json!({"name": "c", "image": "a", "restartPolicy": "Never", "restartPolicyRules": rules});
        for (code, expected) in [(42, "Running c=CrashLoopBackOff/1"), (41, "Failed c=Error/0")] {
            let mut machine =
                TestMachine::new(pod(json!({"restartPolicy": "Always", "containers": [container.clone()]})));
            machine.set_behaviour("c", ContainerBehaviour::Exit(1, code)).run_to(5);
            assert_eq!(machine.summary(), expected, "{code}");
        }
    }

    #[test]
    fn init_containers_run_in_order() {
        let spec = json!({
            "initContainers": [{"name": "i1", "image": "a"}, {"name": "side", "image": "a", "restartPolicy": "Always"},
                {"name": "i2", "image": "a"}],
            "containers": [{"name": "z", "image": "a"}, {"name": "b", "image": "a"}],
        });
        let mut machine = TestMachine::new(pod(spec));
        machine
            .set_behaviour("i1", ContainerBehaviour::Exit(2, 0))
            .set_behaviour("i2", ContainerBehaviour::Exit(3, 0))
            .settle();
        assert_eq!(
            machine.summary(),
            "Pending i1=running/0 side=PodInitializing/0 i2=PodInitializing/0 b=PodInitializing/0 z=PodInitializing/0"
        );
        assert_eq!(machine.condition("Initialized"), "ContainersNotInitialized");
        machine.run_to(60);
        let story = machine.take_messages();
        assert_eq!(
            story,
            [
                "0 start i1#0",
                "2 i1 ends 0",
                "2 start side#0",
                "2 start i2#0",
                "5 i2 ends 0",
                "5 start z#0",
                "5 start b#0"
            ]
        );
        assert_eq!(
            machine.summary(),
            "Running i1+=Completed/0 side+=running/0 i2+=Completed/0 b+=running/0 z+=running/0"
        );
        assert_eq!(machine.condition("Initialized"), "True");
    }

    #[test]
    fn sidecar_that_crashed_after_its_start_holds_nothing_back() {
        let spec = json!({
            "initContainers": [{"name": "side", "image": "a", "restartPolicy": "Always"}, {"name": "i1", "image": "a"},
                {"name": "i2", "image": "a"}],
            "containers": [{"name": "c", "image": "a"}],
        });
        let mut machine = TestMachine::new(pod(spec));
        machine
            .set_behaviour("side", ContainerBehaviour::Exit(1, 1))
            .set_behaviour("i1", ContainerBehaviour::Exit(4, 0))
            .set_behaviour("i2", ContainerBehaviour::Exit(4, 0))
            .run_to(10);
        let starts: Vec<String> = machine
            .take_messages()
            .into_iter()
            .filter(|line| line.contains("start") && !line.contains("side"))
            .collect();
        assert_eq!(starts, ["0 start i1#0", "4 start i2#0", "8 start c#0"]);
        assert!(machine.container("side")["state"]["waiting"].is_object(), "it still waits for its next attempt");
    }

    #[test]
    fn failed_init_container_is_tried_again_or_fails_the_pod() {
        let spec = |policy: &str| {
            let init = json!([{"name": "i", "image": "a"}]);
            json!({"restartPolicy": policy, "initContainers": init, "containers": [{"name": "c", "image": "a"}]})
        };
        let mut machine = TestMachine::new(pod(spec("Always")));
        machine.set_behaviour("i", ContainerBehaviour::Exit(1, 1)).run_to(5);
        assert_eq!(machine.summary(), "Pending i=CrashLoopBackOff/1 c=PodInitializing/0");
        machine.set_behaviour("i", ContainerBehaviour::Exit(1, 0)).run_to(20);
        assert_eq!(machine.summary(), "Running i+=Completed/2 c+=running/0");
        let mut machine = TestMachine::new(pod(spec("Never")));
        machine.set_behaviour("i", ContainerBehaviour::Exit(1, 1)).run_to(5);
        assert_eq!(machine.summary(), "Failed i=Error/0 c=PodInitializing/0");
    }
}
