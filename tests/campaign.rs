//! Campaigns of kills: control planes, shims and whole process groups die at every relevant system call, one round after the other in the
//! same cluster. The workloads' own records show whether a process was disturbed, duplicated, lost or invented.
//!
//! `KLOOP_ROUNDS` sets the number of rounds of a campaign (some dozens by default), `KLOOP_SEED` the seed of its random numbers.
//! Start reading at [`Campaign::run`].

mod tracer;
mod truth;

use crate::cluster::Cluster;
use crate::sim::dice::Dice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tracer::{KilledProcess, Victim, kill_at_call};

/// Number of rounds between two complete checks.
const LEG: usize = 10;

#[test]
fn killed_control_plane_disturbs_no_workload() {
    Campaign::new(Victim::Plane, 36).run();
}

#[test]
fn killed_process_group_disturbs_no_workload() {
    Campaign::new(Victim::Group, 20).run();
}

#[test]
fn killed_shim_duplicates_or_loses_no_workload() {
    Campaign::new(Victim::Shim, 24).run();
}

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A cluster and its expected workloads.
struct Campaign {
    cluster: Cluster,
    victim: Victim,
    rounds: usize,
    seed: usize,
    dice: Dice,
    replicas: usize,
    /// Exit codes of the pods that run once, by name.
    once: BTreeMap<String, u8>,
    jobs: Vec<String>,
    /// Number of kills at each system call.
    calls: BTreeMap<&'static str, usize>,
}

impl Campaign {
    fn new(victim: Victim, rounds: usize) -> Campaign {
        let cluster = Cluster::new();
        truth::prepare(&cluster);
        let seed = number("KLOOP_SEED", 1);
        Campaign {
            cluster,
            victim,
            rounds: number("KLOOP_ROUNDS", rounds),
            seed,
            dice: Dice::new(seed as u64),
            replicas: 2,
            once: BTreeMap::new(),
            jobs: Vec::new(),
            calls: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        if !tracer::is_possible() {
            return skip!("no process may be traced here, so none is killed at its system calls");
        }
        println!("{} rounds from seed {}", self.rounds, self.seed);
        let begun = Instant::now();
        self.apply_web(0);
        for round in 1..=self.rounds {
            self.round(round);
            if round % LEG == 0 || round == self.rounds {
                self.look(round);
            }
        }
        let caught: usize = self.calls.values().sum();
        println!(
            "{caught} of {} rounds killed a {:?}, in {:?}, at {:?}",
            self.rounds,
            self.victim,
            begun.elapsed(),
            self.calls
        );
        assert!(caught * 4 >= self.rounds, "too few rounds killed anything: {:?}", self.calls);
        self.end();
    }

    /// Starts a control plane, makes a change, and kills a process meanwhile.
    fn round(&mut self, round: usize) {
        // A shim makes few system calls; most of a control plane's come early, and some late.
        let span = match self.victim {
            Victim::Shim => 80,
            Victim::Plane | Victim::Group if self.dice.one_in(3) => 2000,
            Victim::Plane | Victim::Group => 300,
        };
        let at = 1 + self.dice.below(span);
        let victim = self.victim;
        let mut command = self.cluster.command();
        command.args(["reconcile", "--watch"]);
        let (sender, started) = channel();
        let caught = std::thread::scope(|scope| {
            let hunter = scope.spawn(move || kill_at_call(&command, victim, at, &sender));
            let plane = started.recv().expect("it starts") as u32;
            self.act(round);
            let until = Instant::now() + Duration::from_secs(20);
            while !hunter.is_finished() && !self.is_settled() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            // The control plane has finished, or the shim is dead and the control plane has to end before the next one starts.
            crate::cluster::signal(plane, "KILL");
            hunter.join().expect("the hunter")
        });
        if let KilledProcess { call: Some(call) } = caught {
            *self.calls.entry(call).or_default() += 1;
        }
    }

    fn act(&mut self, round: usize) {
        match self.dice.below(5) {
            0 => self.apply_web(round),
            1 => {
                self.replicas = 1 + self.dice.below(4);
                self.cluster.ok(&format!("scale deploy/web --replicas={}", self.replicas));
            }
            2 => self.apply_once(&format!("once-{round}"), round),
            3 => self.apply_job(round),
            _ => self.delete_something(),
        }
    }

    fn apply_web(&self, round: usize) {
        self.cluster.apply(
            &json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {
                    "replicas": self.replicas, "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": truth::spec(&self.cluster, &truth::server(), "Always", round)},
                },
            })
            .to_string(),
        );
    }

    fn apply_once(&mut self, name: &str, round: usize) {
        let code = 1 + self.dice.below(120) as u8;
        let spec = truth::spec(&self.cluster, &truth::once(code), "Never", round);
        self.cluster.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "once"}}, "spec": spec}).to_string());
        self.once.insert(name.to_owned(), code);
    }

    fn apply_job(&mut self, round: usize) {
        let name = format!("job-{round}");
        let template = json!({"metadata": {"labels": {"app": "job"}}, "spec": truth::spec(&self.cluster, &truth::once(0), "Never", round)});
        self.cluster.apply(
            &json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                // A pod whose shim is killed has failed and is replaced, any number of times.
                "spec": {"completions": 2, "parallelism": 2, "backoffLimit": 1000, "template": template},
            })
            .to_string(),
        );
        self.jobs.push(name);
    }

    fn delete_something(&mut self) {
        if self.dice.one_in(2) {
            let pods = self.cluster.pods("app=web");
            if let Some(pod) = self.dice.pick(&pods) {
                // The control plane may be killed before it has ended the pod.
                self.cluster.kloop(&format!("delete pod {pod} --wait=false"));
            }
        } else if let Some(name) = self.once.keys().next().cloned() {
            self.cluster.ok(&format!("delete pod {name} --wait=false"));
            self.once.remove(&name);
        }
    }

    /// Whether all expected workloads exist.
    fn is_settled(&self) -> bool {
        let Ok(list) = serde_json::from_str::<Value>(&self.cluster.kloop("get pods,jobs,deployments -o json").out)
        else {
            return false;
        };
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let named = |name: &str| items.iter().find(|object| object["metadata"]["name"] == name);
        let pods = || items.iter().filter(|object| object["kind"] == "Pod");
        let web = || pods().filter(|pod| pod["metadata"]["labels"]["app"] == "web");
        let is_ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        web().filter(is_ready).count() == self.replicas
            && web().count() == self.replicas
            && pods().all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            && named("web").is_some_and(|web| {
                web["status"]["updatedReplicas"] == self.replicas
                    && web["status"]["observedGeneration"] == web["metadata"]["generation"]
            })
            && self.once.keys().all(|name| named(name).is_some_and(has_ended))
            && self.jobs.iter().all(|job| named(job).is_some_and(|job| job["status"]["succeeded"] == 2))
    }

    /// Runs a control plane without kills until all work is done, then compares every record with the status.
    fn look(&mut self, round: usize) {
        // Once this pod has run, the control plane has also processed all earlier events.
        self.apply_once(&format!("after-{round}"), round);
        let plane = self.cluster.watch();
        self.cluster.until("everything wanted is there", || self.is_settled());
        let pods: Value = serde_json::from_str(&self.cluster.ok("get pods -o json")).expect("a list");
        let pods: BTreeMap<&str, &Value> = pods["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|pod| Some((pod["metadata"]["uid"].as_str()?, pod)))
            .collect();
        for (uid, lives) in truth::lives(&self.cluster) {
            let alive = lives.iter().filter(|life| truth::still_lives(&uid, life)).count();
            if self.victim != Victim::Shim {
                // A workload that was deleted at once may have no record of its start.
                assert!(lives.len() <= 1, "{uid} was started twice: {lives:?}");
            }
            match pods.get(uid.as_str()) {
                None => self
                    .cluster
                    .until("the deleted pod has ended", || !lives.iter().any(|life| truth::still_lives(&uid, life))),
                Some(pod) if pod["metadata"]["labels"]["app"] == "web" => self.compare_server(pod, &lives, alive),
                Some(pod) => self.compare_once(pod, &lives, alive),
            }
        }
        plane.end("KILL");
    }

    fn compare_server(&self, pod: &Value, lives: &[truth::Life], alive: usize) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        assert_eq!(alive, 1, "{name}: {lives:?}");
        assert!(lives.iter().all(|life| life.end.is_none()), "{name} was asked to end: {lives:?}");
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().expect("a count");
        assert!(restarts + 1 >= lives.len() as u64, "{name}: the status has {restarts} restarts, {lives:?}");
        if self.victim != Victim::Shim {
            assert_eq!(restarts, 0, "{name}");
            let uid = pod["metadata"]["uid"].as_str().expect("a uid");
            assert_eq!(truth::beginnings(&self.cluster, uid), 1, "the init container of {name} ran once");
            let log = self.cluster.log(name, "main");
            for (at, line) in log.lines().enumerate() {
                assert_eq!(line, format!("line {}", at + 1), "{name} has lost lines of its log:\n{log}");
            }
        }
    }

    fn compare_once(&self, pod: &Value, lives: &[truth::Life], alive: usize) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        assert_eq!(alive, 0, "{name} has ended but still runs");
        assert!(lives.len() <= 1, "{name} is not restarted: {lives:?}");
        let told = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64();
        let truth = lives.last().and_then(|life| life.end).map(i64::from);
        // A process that dies with its shim before its record is written has an unknown exit code.
        let unknown = self.victim == Victim::Shim && told == Some(137);
        assert!(
            told == truth || unknown,
            "{name}: exit code {told:?} is told, {truth:?} is the truth: {}",
            pod["status"]
        );
    }

    /// Deletes everything, and checks that nothing is left.
    fn end(self) {
        let plane = self.cluster.watch();
        self.cluster.ok("delete deployments,jobs,pods --all");
        self.cluster.nothing_is_left();
        plane.end("KILL");
    }
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
