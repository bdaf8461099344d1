//! Latencies for users of the built binary: commands, pods from `apply` to running, restarts, and the cost of idling.
//!
//! `cargo bench --bench figures [-- commands|large|up|restarts|adopt|edit|exec|lives|idle|envtest]`. Medians of several runs; run it on a
//! quiet machine. `pods` measures the runtime alone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|word| word == part);
    if wanted("commands") {
        commands();
    }
    if wanted("large") {
        large_lists(10_000);
    }
    for pods in [100, 1000].into_iter().filter(|_| wanted("up")) {
        for view in ["private", "host"] {
            let bare = bare_spawns(pods);
            bring_up(pods, view, bare);
        }
    }
    if wanted("restarts") {
        restarts(50);
    }
    if wanted("adopt") {
        adopt(500);
    }
    if wanted("edit") {
        edit(30);
    }
    if wanted("exec") {
        exec(100);
    }
    if wanted("lives") {
        lives(1000);
    }
    if wanted("idle") {
        idle(100);
    }
    if wanted("envtest") {
        envtest(20);
    }
}

/// A cluster in its own folder; all its processes end with it.
struct Cluster {
    folder: PathBuf,
    control: Option<Child>,
}

impl Cluster {
    fn new(name: &str) -> Cluster {
        let folder = std::env::temp_dir().join(format!("kloop-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its mode");
        let cluster = Cluster { folder, control: None };
        cluster.kloop(&["get", "namespaces"]);
        cluster
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kloop"));
        command.args(args).env("KLOOP_STATE", self.folder.join("state.db"));
        command
    }

    fn kloop(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("kloop runs")
    }

    fn apply(&self, name: &str, manifest: &str) {
        let file = self.folder.join(name);
        fs::write(&file, manifest).expect("a manifest");
        let output = self.kloop(&["apply", "-f", file.to_str().expect("text")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn watch(&mut self) {
        let mut command = self.command(&["reconcile", "--watch", "-q"]);
        self.control = Some(command.stdout(Stdio::null()).spawn().expect("reconcile runs"));
        let lock = self.folder.join("leader.lock");
        until(|| fs::read(&lock).is_ok_and(|pid| !pid.is_empty()));
        until(|| !self.ready("nodes", "{.items[*].metadata.name}").is_empty());
    }

    fn ready(&self, what: &str, path: &str) -> String {
        let output = self.kloop(&["get", what, "-o", &format!("jsonpath={path}")]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.kloop(&["delete", "deployments", "--all", "--wait=false", "--force"]));
        if let Some(mut control) = self.control.take() {
            // The folder of a pod is gone after its shim.
            until(|| fs::read_dir(self.folder.join("pods")).map_or(0, Iterator::count) == 0);
            drop(control.kill());
            drop(control.wait());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Cluster {
    /// Returns an argument that only this cluster's processes have.
    fn marker(&self) -> String {
        format!("{}", 1_000_000 + std::process::id())
    }

    fn deployment(&self, replicas: usize) -> String {
        self.deployment_with_view(replicas, "private")
    }

    /// Returns a Deployment whose pods have private files, or see those of the host.
    fn deployment_with_view(&self, replicas: usize, view: &str) -> String {
        let annotations = match view {
            "host" => ", annotations: {kloop.dev/filesystem: host}",
            _ => "",
        };
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: {replicas}\n  \
             selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}{annotations}}}\n    spec:\n      \
             terminationGracePeriodSeconds: 1\n      containers:\n      - {{name: c, image: busybox, command: [sleep, \"{}\"]}}\n",
            self.marker()
        )
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited two minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the pids of `sleep MARKER`.
fn processes(marker: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").expect("proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| executes(*pid, marker)).collect()
}

fn executes(pid: u32, marker: &str) -> bool {
    let wanted = format!("sleep\0{marker}\0");
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted.as_bytes())
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let fields = stat.rsplit(')').next().expect("fields");
    fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).expect("a parent")
}

fn children(of: u32) -> impl Iterator<Item = u32> + use<> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>().into_iter()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Returns a quantile of the samples.
fn part(samples: &mut [Duration], part: f64) -> f64 {
    samples.sort();
    milliseconds(samples[((samples.len() - 1) as f64 * part) as usize])
}

fn timed(times: usize, mut act: impl FnMut(usize)) -> Vec<Duration> {
    let one = |number| {
        let start = Instant::now();
        act(number);
        start.elapsed()
    };
    (0..times).map(one).collect()
}

fn print_quantiles(what: &str, samples: &mut [Duration]) {
    println!("{what:<58} p50 {:8.2} ms  p99 {:8.2} ms", part(samples, 0.5), part(samples, 0.99));
}

fn config_maps(count: usize) -> String {
    let one = |number| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}}}\ndata: {{key: value{number}}}\n")
    };
    (0..count).map(one).collect::<Vec<_>>().join("---\n")
}

fn commands() {
    let cluster = Cluster::new("commands");
    print_quantiles("get of one object", &mut timed(50, |_| drop(cluster.kloop(&["get", "namespace", "default"]))));
    print_quantiles(
        "apply of one new object",
        &mut timed(50, |number| {
            cluster.apply("one.yaml", &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one{number}}}\n"));
        }),
    );
    let mut thousand = timed(1, |_| cluster.apply("thousand.yaml", &config_maps(1000)));
    print_quantiles("apply of 1,000 objects", &mut thousand);
    let rest: String = config_maps(10_000);
    cluster.apply("all.yaml", &rest);
    print_quantiles(
        "get pods with 10,000 other objects in the file",
        &mut timed(50, |_| drop(cluster.kloop(&["get", "pods"]))),
    );
    print_quantiles(
        "get of one object with 10,000 in the file",
        &mut timed(50, |_| drop(cluster.kloop(&["get", "cm", "c77"]))),
    );
}

/// Measures lists of many objects, and their creation.
fn large_lists(count: usize) {
    let cluster = Cluster::new("large");
    let pod = |number| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, labels: {{app: web}}}}\nspec:\n  containers:\n  \
             - {{name: c, image: busybox, command: [sleep, \"1000\"]}}\n"
        )
    };
    let manifests = [
        ("ConfigMaps", "maps.yaml", config_maps(count)),
        ("pods", "pods.yaml", (0..count).map(pod).collect::<Vec<_>>().join("---\n")),
    ];
    for (what, file, manifest) in manifests {
        print_quantiles(&format!("apply of {count} {what}"), &mut timed(1, |_| cluster.apply(file, &manifest)));
    }
    let lines: [&[&str]; 4] = [
        &["get", "cm", "-o", "name"],
        &["get", "pods", "-o", "name"],
        &["get", "pods"],
        &["get", "pods", "-o", "json"],
    ];
    for line in lines {
        let run = |_| assert!(cluster.kloop(line).status.success());
        print_quantiles(&format!("{} of {count}", line.join(" ")), &mut timed(11, run));
    }
}

/// The lower bound: the same number of processes, started in a loop. Returns its time.
fn bare_spawns(count: usize) -> Duration {
    let start = Instant::now();
    let mut children: Vec<Child> =
        (0..count).map(|_| Command::new("sleep").arg("1000").spawn().expect("sleep runs")).collect();
    let time = start.elapsed();
    println!("{count} bare spawns {:45} {:8.1} ms", "", milliseconds(time));
    for child in &mut children {
        drop(child.kill());
        drop(child.wait());
    }
    time
}

/// Measures the start of many pods, also as a multiple of the time of as many bare spawns.
fn bring_up(count: usize, view: &str, bare: Duration) {
    let mut cluster = Cluster::new(&format!("up{count}"));
    cluster.watch();
    let mut fewest = tasks();
    let start = Instant::now();
    cluster.apply("web.yaml", &cluster.deployment_with_view(count, view));
    // Searching all processes costs as much as starting some pods, so it happens only when half of the processes and shims are there. Not
    // all: threads of the run before, which still end, would be missed until the standby processes start after ten seconds.
    until(|| {
        let now = tasks();
        fewest = fewest.min(now);
        now >= fewest + count && processes(&cluster.marker()).len() >= count
    });
    let time = start.elapsed();
    let multiple = time.as_secs_f64() / bare.as_secs_f64();
    let what = format!("{count} pods with {view} files, apply to all executing");
    println!("{what:<58} {:8.1} ms, {multiple:.1} times bare spawns", milliseconds(time));
    until(|| cluster.ready("deployment/web", "{.status.readyReplicas}") == count.to_string());
    println!("{count} pods from apply to all Ready in the status {:16} {:8.1} ms", "", milliseconds(start.elapsed()));
}

/// Returns the number of threads on this machine.
fn tasks() -> usize {
    let load = fs::read_to_string("/proc/loadavg").expect("loadavg");
    let total = load.split([' ', '/']).nth(4).and_then(|total| total.parse().ok());
    total.expect("running/total")
}

/// Kills the only process of a pod and waits for the next attempt, each time with a new pod, because only the first restart is immediate.
fn restarts(times: usize) {
    let mut cluster = Cluster::new("restarts");
    cluster.watch();
    cluster.apply("web.yaml", &cluster.deployment(times));
    until(|| cluster.ready("deployment/web", "{.status.readyReplicas}") == times.to_string());
    until_standbys_exist(&cluster);
    let mut samples = Vec::new();
    for victim in processes(&cluster.marker()) {
        let pid = rustix::process::Pid::from_raw(victim as i32).expect("a pid");
        let shim = parent(victim);
        let start = Instant::now();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        while !children(shim).any(|pid| pid != victim && executes(pid, &cluster.marker())) {
            std::thread::sleep(Duration::from_micros(100));
        }
        samples.push(start.elapsed());
        // The next one is killed once the control plane has recorded this restart.
        until(|| restart_count(&cluster) == samples.len());
    }
    print_quantiles("kill -9 to the successor executing", &mut samples);
}

/// Returns the number of recorded restarts of all pods.
fn restart_count(cluster: &Cluster) -> usize {
    let counts = cluster.ready("pods", "{.items[*].status.containerStatuses[*].restartCount}");
    counts.split_whitespace().filter_map(|count| count.parse::<usize>().ok()).sum()
}

/// Waits until each container has run for so long that its shim has prepared a standby process.
fn until_standbys_exist(cluster: &Cluster) {
    until(|| {
        let mut containers = processes(&cluster.marker()).into_iter();
        containers.all(|container| children(parent(container)).count() == 2)
    });
}

/// Kills the control plane while pods run; measures the next one from its start until it has found all pods.
fn adopt(pods: usize) {
    let mut cluster = Cluster::new("adopt");
    cluster.watch();
    cluster.apply("web.yaml", &cluster.deployment(pods));
    until(|| cluster.ready("deployment/web", "{.status.readyReplicas}") == pods.to_string());
    let mut samples = Vec::new();
    for _ in 0..5 {
        let mut before = cluster.control.take().expect("it runs");
        before.kill().expect("killed");
        before.wait().expect("ended");
        let start = Instant::now();
        let mut next =
            cluster.command(&["reconcile", "--watch"]).stdout(Stdio::piped()).spawn().expect("reconcile runs");
        let mut lines = BufReader::new(next.stdout.take().expect("its output")).lines();
        let wanted = format!("{pods} pods keep running");
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains(&wanted))), "it does not know them all");
        samples.push(start.elapsed());
        // Keeps reading its output.
        std::thread::spawn(move || lines.count());
        cluster.control = Some(next);
    }
    print_quantiles(&format!("a new control plane adopts {pods} running pods"), &mut samples);
}

/// Measures the time from the edit of a ConfigMap until a running container's file has changed.
fn edit(times: usize) {
    let mut cluster = Cluster::new("edit");
    cluster.watch();
    let config = |value: usize| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{key: value-{value}-}}\n")
    };
    cluster.apply("config.yaml", &config(0));
    cluster.apply(
        "pod.yaml",
        &format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: reader}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  \
             - {{name: c, image: busybox, command: [sleep, \"{}\"], volumeMounts: [{{name: v, mountPath: /settings}}]}}\n  \
             volumes: [{{name: v, configMap: {{name: settings}}}}]\n",
            cluster.marker()
        ),
    );
    until(|| cluster.ready("pod/reader", "{.status.phase}") == "Running");
    let root = format!("/proc/{}/root/settings/key", processes(&cluster.marker())[0]);
    let mut samples = timed(times, |number| {
        cluster.apply("config.yaml", &config(number + 1));
        until(|| fs::read_to_string(&root).is_ok_and(|text| text == format!("value-{}-", number + 1)));
    });
    print_quantiles("apply of a ConfigMap to the changed file", &mut samples);
    drop(cluster.kloop(&["delete", "pod", "reader", "--now"]));
}

fn exec(times: usize) {
    let mut cluster = Cluster::new("exec");
    cluster.watch();
    cluster.apply("web.yaml", &cluster.deployment(1));
    until(|| cluster.ready("deployment/web", "{.status.readyReplicas}") == "1");
    let run = |_| assert!(cluster.kloop(&["exec", "deploy/web", "--", "true"]).status.success());
    print_quantiles("exec of true", &mut timed(times, run));
}

/// Runs pods that execute `true`, from apply to Succeeded and complete deletion.
fn lives(count: usize) {
    let mut cluster = Cluster::new("lives");
    cluster.watch();
    let pod = |number| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}}}\nspec:\n  restartPolicy: Never\n  containers:\n  \
             - {{name: c, image: busybox, command: [\"true\"]}}\n"
        )
    };
    let manifest: Vec<String> = (0..count).map(pod).collect();
    let start = Instant::now();
    cluster.apply("pods.yaml", &manifest.join("---\n"));
    // One process that watches takes less from the pods than many that list them.
    let wait = ["wait", "pods", "--all", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s"];
    assert!(cluster.kloop(&wait).status.success());
    let succeeded = start.elapsed();
    assert!(cluster.kloop(&["delete", "pods", "--all"]).status.success());
    let folders = cluster.folder.join("pods");
    until(|| fs::read_dir(&folders).map_or(0, Iterator::count) == 0);
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("{count} lives of pods: {rate:.0} a second (all succeeded after {:.1} ms)", milliseconds(succeeded));
}

/// Measures CPU and memory of an idle control plane.
fn idle(pods: usize) {
    let mut cluster = Cluster::new("idle");
    cluster.watch();
    cluster.apply("web.yaml", &cluster.deployment(pods));
    until(|| cluster.ready("deployment/web", "{.status.readyReplicas}") == pods.to_string());
    until_standbys_exist(&cluster);
    let pid = cluster.control.as_ref().expect("runs").id();
    let (before, span) = (cpu_nanos(pid), Duration::from_secs(30));
    std::thread::sleep(span);
    let used = (cpu_nanos(pid) - before) as f64 / span.as_nanos() as f64 * 100.0;
    println!(
        "idle with {pods} pods: {used:.3} % of a core, {} kB resident",
        resident(Path::new(&format!("/proc/{pid}/status")))
    );
}

/// CPU time of a process, from each of its threads. The ticks in its `stat` are hundredths of a second, as much as it uses in a minute.
fn cpu_nanos(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.map(|text| text.split(' ').next().expect("a field").parse::<u64>().expect("nanoseconds")).sum()
}

fn resident(status: &Path) -> String {
    let text = fs::read_to_string(status).expect("status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").to_owned()
}

/// Starts kloop as `etcd` and as `kube-apiserver`, as envtest does, until each answers that it is ready.
fn envtest(times: usize) {
    let free_port = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        listener.local_addr().expect("an address").port()
    };
    let client = ureq::Agent::config_builder().proxy(None);
    let client = client.tls_config(ureq::tls::TlsConfig::builder().disable_verification(true).build());
    let client = ureq::Agent::new_with_config(client.build());
    let wait = |url: String| until(|| client.get(&url).call().is_ok());
    let mut samples = timed(times, |_| {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |name: &str, flags: &[String]| {
            let program = folder.path().join(name);
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kloop"), &program).expect("linked");
            Command::new(program).args(flags).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started")
        };
        let (url, port) = (format!("http://127.0.0.1:{}", free_port()), free_port());
        let data = folder.path().join("data");
        let flags = [
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            "--unsafe-no-fsync=true".to_owned(),
        ];
        let mut etcd = start("etcd", &flags);
        wait(format!("{url}/health"));
        let flags = [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", folder.path().display()),
            format!("--etcd-servers={url}"),
            format!("--secure-port={port}"),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let mut server = start("kube-apiserver", &flags);
        wait(format!("https://127.0.0.1:{port}/readyz"));
        for program in [&mut server, &mut etcd] {
            program.kill().expect("killed");
            program.wait().expect("ended");
        }
    });
    print_quantiles("envtest: both programs to the first answer", &mut samples);
}
