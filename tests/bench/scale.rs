//! The cost of size: scheduling on thousands of nodes, Deployments on simulated nodes, rollouts, a lost node.
//!
//! `cargo bench --bench scale [-- place|spread|anti|affinity|preempt|churn|unfit|stuck|whole|rollout|lost|curve [PODS [NODES]]]`. Uses the
//! control plane's own parts with a file on disk: all measured writes are durable. Each case runs in its own process, so that memory is
//! measured separately.

use kloop::apiserver::{Api, Transaction, WriteOptions, create::create};
use kloop::object::{Object, Resource, Time};
use kloop::reconcile::control_plane::{ControlPlane, TickInput};
use kloop::reconcile::tick::{TickBudget, TickError};
use kloop::reconcile::{leader, loops, node};
use kloop::runtime::capacity::{MachineCapacity, measure_capacity};
use kloop::store::OpenMode;
use kloop::world::{Loop, Phase, World};
use kloop::{kinds, scheduler};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The default measurements: case, pods, nodes.
const ALL: [(&str, usize, usize); 16] = [
    ("place", 10_000, 5000),
    ("place", 50_000, 5000),
    ("spread", 5000, 5000),
    ("anti", 5000, 5000),
    ("affinity", 5000, 5000),
    ("preempt", 5000, 5000),
    ("churn", 5000, 5000),
    ("unfit", 10_000, 5000),
    ("stuck", 10_000, 5000),
    ("curve", 1000, 5000),
    ("curve", 10_000, 5000),
    ("curve", 50_000, 5000),
    ("curve", 150_000, 5000),
    ("whole", 150_000, 5000),
    ("rollout", 10_000, 5000),
    ("lost", 150_000, 5000),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let number = |at: usize| words.get(at).map(|word| word.parse().expect("a number"));
    match (words.first(), number(1), number(2)) {
        (Some(case), Some(pods), nodes) => measure(case, pods, nodes.unwrap_or(5000)),
        (named, _, _) => {
            let program = std::env::current_exe().expect("this program");
            for (case, pods, nodes) in ALL.into_iter().filter(|(case, _, _)| named.is_none_or(|named| named == case)) {
                let args = [case.to_owned(), pods.to_string(), nodes.to_string()];
                Command::new(&program).args(args).status().expect("it runs");
            }
        }
    }
}

fn measure(case: &str, pods: usize, nodes: usize) {
    kloop::runtime::allocator::use_mimalloc();
    match case {
        "place" => place("pods without wishes", pods, nodes, |_| json!({})),
        "spread" => place("pods spread over zones", pods, nodes, |_| spread()),
        "anti" => place("pods away from each other, required", pods, nodes, |_| {
            near("podAntiAffinity", "kubernetes.io/hostname")
        }),
        "affinity" => {
            place("pods near each other, required", pods, nodes, |_| near("podAffinity", "topology.kubernetes.io/zone"))
        }
        "preempt" => preempt(pods, nodes),
        "churn" => churn(pods, nodes),
        "unfit" => unfit(pods, nodes),
        "stuck" => stuck(pods, nodes),
        "whole" | "curve" => whole(pods, nodes),
        "rollout" => rollout(pods, nodes),
        "lost" => lost(pods, nodes),
        other => panic!("no case {other}"),
    }
}

/// A control plane with its own file, without a machine.
struct Lab {
    folder: PathBuf,
    api: Api,
    plane: ControlPlane,
    epoch: u64,
}

impl Lab {
    fn new(nodes: usize, loops: Vec<&'static Loop>) -> Lab {
        let folder = std::env::temp_dir().join(format!("kloop-scale-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its mode");
        let mut api = Api::open(&folder.join("state.db"), OpenMode::Create, "bench").expect("a store");
        let epoch = leader::raise_epoch(api.store_mut(), 0).expect("an epoch");
        let mut plane = ControlPlane::new(None, Time::now());
        plane.loops = loops;
        let mut lab = Lab { folder, api, plane, epoch };
        lab.create("nodes", (0..nodes).map(node_object));
        lab
    }

    fn create(&mut self, resource: &'static str, objects: impl Iterator<Item = Object>) {
        let kind = kinds::by_resource(Resource(resource)).expect("a kind");
        let mut objects = objects.peekable();
        while objects.peek().is_some() {
            let write = |txn: &mut dyn Transaction| {
                objects
                    .by_ref()
                    .take(2000)
                    .try_for_each(|one| create(txn, kind, &one, &WriteOptions::default()).map(drop))
            };
            self.api.write(false, write).expect("created");
        }
    }

    /// Loads the state before a measurement.
    fn load(&mut self) {
        let snapshot = self.api.store().read().expect("a snapshot");
        self.plane.load(&snapshot, || [], 10, Time::now()).expect("loaded");
    }

    /// Ticks until there is no work left and `done` returns true.
    fn run(&mut self, what: &str, done: impl FnMut(&World) -> bool) {
        self.run_beside(what, |_, _| {}, done);
    }

    /// Like [`Lab::run`], with a callback before each tick that receives the elapsed time.
    fn run_beside(
        &mut self,
        what: &str,
        mut beside: impl FnMut(&mut Lab, Duration),
        mut done: impl FnMut(&World) -> bool,
    ) {
        let (start, mut told, mut asked) = (Instant::now(), Instant::now(), Instant::now());
        let mut pause_of_asking = Duration::ZERO;
        loop {
            beside(self, start.elapsed());
            let now = Time::now();
            self.plane.keep_time(now);
            let busy = self.tick(now);
            if told.elapsed() > Duration::from_secs(20) {
                told = Instant::now();
                eprintln!("  {what}: after {:.0} s {}", start.elapsed().as_secs_f64(), standing(&self.plane.world));
            }
            // Checking costs time that must not be measured.
            if !busy || asked.elapsed() > pause_of_asking {
                asked = Instant::now();
                if done(&self.plane.world) {
                    return;
                }
                pause_of_asking = asked.elapsed().saturating_mul(50).max(Duration::from_millis(5));
            }
            if !busy {
                let pause = self.plane.next_due().duration_since(Time::now()).max(jiff::SignedDuration::ZERO);
                std::thread::sleep(pause.unsigned_abs().min(Duration::from_millis(200)));
            }
            assert!(start.elapsed() < Duration::from_secs(1200), "{what}: {}", standing(&self.plane.world));
        }
    }

    /// Ticks until there is no work left.
    fn finish(&mut self) -> Duration {
        let start = Instant::now();
        while self.tick(Time::now()) {}
        start.elapsed()
    }

    /// Runs one tick, with durable writes as in `reconcile --watch`. Returns whether there may be more work.
    fn tick(&mut self, now: Time) -> bool {
        let mut random = kloop::apiserver::api::random;
        let input = TickInput {
            now,
            epoch: self.epoch,
            budget: TickBudget::default(),
            random: &mut random,
            log_may_have_changed: true,
        };
        let busy = match self.plane.tick(self.api.store_mut(), input, &mut |_| {}) {
            Ok((_, busy)) => busy,
            Err(TickError::Store(error)) => panic!("{error}"),
            Err(_) => panic!("the commit failed"),
        };
        let store = self.api.store_mut();
        match store.unsynced_since() {
            Some(_) if !busy => store.sync().expect("synced"),
            Some(since) if since.elapsed() >= Duration::from_millis(20) => store.sync_behind().expect("synced"),
            _ => {}
        }
        busy
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn standing(world: &World) -> String {
    let (mut bound, mut running) = (0, 0);
    for pod in world.list("pods").filter_map(|row| row.pod()) {
        bound += usize::from(pod.node.is_some());
        running += usize::from(pod.phase == Phase::Running);
    }
    format!("{} pods, {bound} bound, {running} running, {}", world.count_of("pods"), memory())
}

/// Returns the maximum resident memory.
fn memory() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    format!("{} MB", kilobytes / 1024)
}

fn node_object(number: usize) -> Object {
    let name = format!("node-{number:05}");
    let machine = measure_capacity(Some(&name), std::path::Path::new("/"));
    let capacity = MachineCapacity { cpu_milli: 4000, memory: 32 << 30, pods: 110, ..machine };
    let mut node = node::additional(&capacity, node::SIMULATED, Time::now());
    node.set(&["metadata", "labels", "topology.kubernetes.io/zone"], format!("zone-{}", number % 3));
    node
}

fn spec() -> Value {
    json!({"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]})
}

fn pod_object(prefix: &str, number: usize, pod_spec: Value) -> Object {
    let mut spec = spec();
    json_patch::merge(&mut spec, &pod_spec);
    let meta = json!({"name": format!("{prefix}-{number:06}"), "namespace": "default", "labels": {"app": prefix}});
    Object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
}

fn spread() -> Value {
    json!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "p"}}}]})
}

fn near(field: &str, key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": key});
    json!({"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn all_bound(world: &World) -> bool {
    world.pods_on("").next().is_none()
}

/// Start of a measurement, with the CPU time of this process.
struct Span {
    start: Instant,
    cpu: Duration,
}

impl Span {
    fn begin() -> Span {
        Span { start: Instant::now(), cpu: cpu() }
    }
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn print_results(what: &str, pods: usize, nodes: usize, span: &Span) {
    let took = span.start.elapsed();
    let rate = pods as f64 / took.as_secs_f64();
    let busy = (cpu() - span.cpu).as_micros() as f64 / pods as f64;
    println!(
        "{what}: {pods} pods, {nodes} nodes: {:.2} s, {rate:.0} pods/s, {:.0} us a pod, {busy:.0} us of CPU, {}",
        took.as_secs_f64(),
        1e6 / rate,
        memory()
    );
}

/// Schedules existing pods with the scheduler alone.
fn place(what: &str, pods: usize, nodes: usize, pod_spec: fn(usize) -> Value) {
    let mut lab = Lab::new(nodes, vec![&scheduler::LOOP]);
    lab.create("pods", (0..pods).map(|number| pod_object("p", number, pod_spec(number))));
    lab.load();
    let span = Span::begin();
    lab.run(what, all_bound);
    print_results(&format!("bound, {what}"), pods, nodes, &span);
    println!("  events told {:.2} s later", lab.finish().as_secs_f64());
}

/// Makes a control plane with a class of important pods, and with other pods that are all scheduled.
fn with_important(nodes: usize, others: usize, pod_spec: &Value) -> Lab {
    let mut lab = Lab::new(nodes, vec![&scheduler::LOOP]);
    lab.create("pods", (0..others).map(|number| pod_object("low", number, pod_spec.clone())));
    lab.load();
    lab.run("filling", all_bound);
    lab.finish();
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10});
    lab.create("priorityclasses.scheduling.k8s.io", [Object(class)].into_iter());
    lab
}

/// Spec of a pod that takes a quarter of a node.
fn quarter_cpu_spec() -> Value {
    json!({"terminationGracePeriodSeconds": 0, "priority": 0, "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "900m", "memory": "500Mi"}}}]})
}

fn important(cpu: &str) -> Value {
    json!({"priorityClassName": "high", "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}]})
}

/// The interval at which a pod with a higher priority is created (scheduler_perf: `churn` with `intervalMilliseconds: 200`).
const EACH: Duration = Duration::from_millis(200);

/// Schedules pods while important ones arrive; returns the number of important ones.
fn beside_important(lab: &mut Lab, what: &str, pods: usize, nodes: usize, pod_spec: &Value) {
    lab.create("pods", (0..pods).map(|number| pod_object("p", number, json!({}))));
    lab.load();
    let (span, mut came) = (Span::begin(), 0);
    let come = |lab: &mut Lab, since: Duration| {
        if since >= EACH * came {
            lab.create("pods", [pod_object("high", came as usize, pod_spec.clone())].into_iter());
            came += 1;
        }
    };
    let are_bound = |world: &World| world.pods_on("").all(|pod| !pod.key.name.starts_with("p-"));
    lab.run_beside(what, come, are_bound);
    print_results(&format!("bound, {what}"), pods, nodes, &span);
    lab.finish();
    let bound = lab.plane.world.list("pods").filter(|row| row.pod().is_some_and(|pod| pod.priority > 0));
    let bound = bound.filter(|row| row.pod().is_some_and(|pod| pod.node.is_some())).count();
    println!("  {came} more important pods came meanwhile, of which {bound} got a node");
}

/// Each node has four less important pods and some free room. Small pods are scheduled while five times a second a pod arrives that
/// preempts three others. (Kubernetes: PreemptionAsync, which measures the throughput of the small ones.)
fn churn(pods: usize, nodes: usize) {
    let mut lab = with_important(nodes, nodes * 4, &quarter_cpu_spec());
    beside_important(&mut lab, "while others are preempted", pods, nodes, &important("3000m"));
}

/// Schedules pods while five times a second a pod arrives that fits no node. (Kubernetes: Unschedulable.)
fn unfit(pods: usize, nodes: usize) {
    let mut lab = with_important(nodes, 100, &json!({}));
    beside_important(&mut lab, "while others fit nowhere", pods, nodes, &important("9"));
}

/// All nodes are full of less important pods; each new pod preempts three (Kubernetes: PreemptionBasic).
fn preempt(pods: usize, nodes: usize) {
    let mut lab = with_important(nodes, nodes * 4, &quarter_cpu_spec());
    lab.create("pods", (0..pods).map(|number| pod_object("high", number, important("3000m"))));
    let span = Span::begin();
    // No kubelet runs the pods: victims are deleted at once.
    let bound = |world: &World| {
        world.list_in("pods", "default").take(pods).all(|row| row.pod().is_some_and(|pod| pod.node.is_some()))
    };
    lab.run("preemption", bound);
    print_results("bound by preemption", pods, nodes, &span);
}

/// Schedules pods while unschedulable ones exist.
fn stuck(pods: usize, nodes: usize) {
    let mut lab = Lab::new(nodes, vec![&scheduler::LOOP]);
    let huge = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100"}}}]});
    lab.create("pods", (0..pods).map(|number| pod_object("huge", number, huge.clone())));
    lab.load();
    println!("  {pods} pods that fit nowhere were told so in {:.2} s", lab.finish().as_secs_f64());
    lab.create("pods", (0..pods).map(|number| pod_object("p", number, json!({}))));
    let span = Span::begin();
    let all_others_are_bound =
        |world: &World| world.node_cache().iter().map(|node| node.load.pods).sum::<i64>() == pods as i64;
    lab.run("with stuck pods", all_others_are_bound);
    print_results("bound while as many fit nowhere", pods, nodes, &span);
    lab.finish();
    lab.create("nodes", [node_object(nodes)].into_iter());
    println!("  one node more: {:.2} s", lab.finish().as_secs_f64());
}

fn deployment_object(number: usize, replicas: usize) -> Object {
    let name = format!("web-{number:04}");
    Object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec()}},
    }))
}

fn all_run(world: &World, pods: usize) -> bool {
    world.count_of("pods") == pods
        && world.list("pods").all(|row| row.pod().is_some_and(|pod| pod.phase == Phase::Running))
}

/// Runs Deployments of 150 pods from apply to all Running, with every loop.
fn whole(pods: usize, nodes: usize) {
    let mut lab = Lab::new(nodes, loops::all_loops());
    lab.load();
    lab.finish();
    let deployments = pods.div_ceil(150);
    let (span, before) = (Span::begin(), lab.plane.world.revision);
    lab.create("deployments.apps", (0..deployments).map(|number| deployment_object(number, pods / deployments)));
    let wanted = pods / deployments * deployments;
    lab.run("running", |world| all_run(world, wanted));
    print_results(&format!("from apply to Running, {deployments} Deployments"), wanted, nodes, &span);
    let finish = lab.finish().as_secs_f64();
    let written = (lab.plane.world.revision - before) as f64 / wanted as f64;
    println!("  {written:.2} entries of the log a pod, events too; at finish {finish:.2} s later, {}", memory());
}

/// Changes the image of one Deployment.
fn rollout(pods: usize, nodes: usize) {
    let mut lab = Lab::new(nodes, loops::all_loops());
    lab.load();
    lab.finish();
    let span = Span::begin();
    lab.create("deployments.apps", [deployment_object(0, pods)].into_iter());
    lab.run("running", |world| all_run(world, pods));
    print_results("one Deployment from apply to Running", pods, nodes, &span);
    lab.finish();
    let kind = kinds::by_name("deployments").expect("a kind");
    let mut changed = deployment_object(0, pods);
    changed.0["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:2".into();
    let update = |txn: &mut dyn Transaction| {
        kloop::apiserver::update::update(
            txn,
            kind,
            &changed,
            kloop::apiserver::update::UpdatePart::Main,
            &WriteOptions::default(),
        )
    };
    lab.api.write(false, update).expect("updated");
    let is_rolled = |world: &World| {
        world.find("deployments.apps", "default", "web-0000").is_some_and(|row| {
            let body = row.body();
            body.generation() == 2
                && body.int(&["status", "observedGeneration"]) == Some(2)
                && body.int(&["status", "updatedReplicas"]) == Some(pods as i64)
                && body.int(&["status", "availableReplicas"]) == Some(pods as i64)
                && body.int(&["status", "replicas"]) == Some(pods as i64)
        })
    };
    let span = Span::begin();
    lab.run("rolling", is_rolled);
    print_results("rolling update", pods, nodes, &span);
    println!("  at finish {:.2} s later", lab.finish().as_secs_f64());
}

/// Deletes a node with pods, until its pods run elsewhere.
fn lost(pods: usize, nodes: usize) {
    let mut lab = Lab::new(nodes, loops::all_loops());
    let deployments = pods.div_ceil(150);
    lab.create("deployments.apps", (0..deployments).map(|number| deployment_object(number, pods / deployments)));
    lab.load();
    let wanted = pods / deployments * deployments;
    lab.run("running", |world| all_run(world, wanted));
    lab.finish();
    let name = lab.plane.world.list("nodes").next().expect("a node").key.name.clone();
    let gone = lab.plane.world.pods_on(&name).count();
    let kind = kinds::by_name("nodes").expect("a kind");
    let key = kloop::object::Key::new(kind.resource, "", &name);
    let start = Instant::now();
    lab.api
        .write(false, |txn| kloop::apiserver::delete::delete(txn, kind, &key, &Default::default()))
        .expect("deleted");
    let found_again = |world: &World| {
        world.pods_on(&name).next().is_none()
            && world.count_of("pods") == wanted
            && all_bound(world)
            && all_run(world, wanted)
    };
    lab.run("healing", found_again);
    println!(
        "a node of {gone} pods gone among {nodes}: its pods run elsewhere after {:.2} s",
        start.elapsed().as_secs_f64()
    );
    println!("  at finish {:.2} s later", lab.finish().as_secs_f64());
}
