//! The cost of the pod network with the built binary, compared with direct loopback in the same run: both paths in turn, several rounds,
//! the best of each, because the machine is seldom quiet.
//!
//! `cargo bench --bench network [-- connects|traffic|outside|ingress|scale|death]`. If nginx and HAProxy are
//! installed, they are measured with the same load. [`load`] contains clients and servers.

#[path = "../cluster.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod cluster;
mod load;

use cluster::{Cluster, signal};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Rounds of each comparison.
const ROUNDS: usize = 9;
/// Port of the server in pods; also the base for the server outside of pods.
const PORT: u16 = 18_080;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if std::env::args().any(|word| word == "--pinned") {
        load::pin_to_one_core();
    }
    match words.first().map(String::as_str) {
        Some("serve") => return load::serve(words[1].parse().expect("a port")),
        Some("client") => return load::client(&words[1..]),
        _ => {}
    }
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let parts: [(&str, fn()); 6] = [
        ("connects", connects),
        ("traffic", traffic),
        ("outside", outside),
        ("ingress", ingress),
        ("scale", scale),
        ("death", death),
    ];
    parts.iter().filter(|(name, _)| wanted(name)).for_each(|(_, measure)| measure());
}

fn this() -> String {
    std::env::current_exe().expect("this program").display().to_string()
}

/// A cluster with a server behind a Service, and a pod for clients.
struct Stage {
    cluster: Cluster,
    /// Address of the server without its port.
    pod: String,
    service: String,
}

impl Stage {
    fn new() -> Stage {
        Stage::of("serve")
    }

    /// Makes a stage with a server that this command starts.
    fn of(serve: &str) -> Stage {
        let cluster = Cluster::new();
        drop(cluster.watch());
        let pod = |name: &str, command: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}, annotations: {{kloop.dev/filesystem: host}}}}, \
                 spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: busybox, command: {command}}}]}}}}\n---\n"
            )
        };
        let server = format!("[\"{}\", {serve}, \"{PORT}\"]", this());
        let ports =
            (PORT..PORT + 3).map(|port| format!("{{name: p{port}, port: {port}}}")).collect::<Vec<_>>().join(", ");
        cluster.apply(&(pod("server", &server) + &pod("client", "[sleep, \"10000\"]")));
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: server}}, spec: {{selector: {{app: server}}, ports: [{ports}]}}}}"
        ));
        for name in ["server", "client"] {
            cluster.ready_pods(&format!("app={name}"), 1);
        }
        let (pod, service) =
            (cluster.read("pod/server", "{.status.podIP}"), cluster.read("service/server", "{.spec.clusterIP}"));
        cluster.until("the Service answers", || connects_to(&format!("{service}:{PORT}")));
        Stage { cluster, pod, service }
    }

    /// Returns the measurements of a client in the pod.
    fn inside(&self, line: &str) -> Vec<f64> {
        let program = this();
        let words = line.split(' ');
        let arguments: Vec<&str> = ["exec", "client", "--", &program, "client"].into_iter().chain(words).collect();
        let said = self.cluster.run(&arguments, "");
        numbers(&said.out).unwrap_or_else(|| panic!("{}{}", said.out, said.err))
    }
}

fn connects_to(place: &str) -> bool {
    std::net::TcpStream::connect(place).is_ok()
}

/// Returns the measurements of a client outside of pods.
fn outside_client(line: &str) -> Vec<f64> {
    let output = Command::new(this()).arg("client").args(line.split(' ')).output().expect("a client");
    numbers(&String::from_utf8_lossy(&output.stdout))
        .unwrap_or_else(|| panic!("{line}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn numbers(text: &str) -> Option<Vec<f64>> {
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

/// One of several compared paths.
type WayTo<'a> = (&'a str, Box<dyn Fn() -> Vec<f64> + 'a>);

/// Measures each path in turn, in alternating order; returns the results by path and round.
fn compare(ways: &[WayTo]) -> Vec<Vec<Vec<f64>>> {
    let mut results = vec![Vec::new(); ways.len()];
    for round in 0..ROUNDS {
        let mut both: Vec<_> = ways.iter().zip(&mut results).collect();
        if round % 2 == 1 {
            both.reverse();
        }
        both.into_iter().for_each(|((_, go), results)| results.push(go()));
    }
    results
}

fn best(results: &[Vec<f64>], at: usize, better: fn(f64, f64) -> f64) -> f64 {
    results.iter().map(|numbers| numbers[at]).reduce(better).expect("a result")
}

/// Prints the best rate of each path, and its median relative to the first path of the same round.
fn tell_rates(what: &str, unit: &str, ways: &[WayTo], at: usize, results: &[Vec<Vec<f64>>]) {
    let first = &results[0];
    for ((name, _), results) in ways.iter().zip(results) {
        let rate = best(results, at, f64::max);
        let mut shares: Vec<f64> = results.iter().zip(first).map(|(own, first)| own[at] / first[at] * 100.0).collect();
        shares.sort_by(f64::total_cmp);
        println!("{what}, {name:<40} {rate:>10.0} {unit}  {:6.1} %", shares[shares.len() / 2]);
    }
}

/// A server as in the pod, outside of pods.
struct Direct(Child);

impl Direct {
    fn new() -> Direct {
        let child = Command::new(this()).args(["serve", &(PORT + 10).to_string()]).spawn().expect("a server");
        let direct = Direct(child);
        until(|| connects_to(&format!("127.0.0.1:{}", PORT + 12)));
        direct
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(300), "waited five minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns policies that do not affect these two pods.
fn policies(count: usize) -> String {
    let one = |number| {
        let rule = "[{podSelector: {matchLabels: {app: client}}}, {podSelector: {matchLabels: {app: server}}}]";
        format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: p{number}}}, spec: {{podSelector: {{}}, policyTypes: [Ingress, Egress], \
             ingress: [{{from: {rule}}}], egress: [{{to: {rule}}}]}}}}\n---\n"
        )
    };
    (0..count).map(one).collect()
}

/// Measures connections of a pod: with and without the filter, to a pod and through a Service, and with policies.
fn connects() {
    let (stage, _direct) = (Stage::new(), Direct::new());
    let bare = PORT + 2;
    let run = |with: &str, threads: usize| {
        let plain = format!("connects 127.0.0.1:{} {threads}", PORT + 12);
        let pod = format!("connects {}:{bare} {threads}", stage.pod);
        let service = format!("connects {}:{bare} {threads}", stage.service);
        let ways: [WayTo; 4] = [
            ("direct", Box::new(|| outside_client(&plain))),
            ("not a pod, to the pod", Box::new(|| outside_client(&pod))),
            ("a pod, to the pod", Box::new(|| stage.inside(&pod))),
            ("a pod, by ClusterIP", Box::new(|| stage.inside(&service))),
        ];
        let results = compare(&ways);
        if threads == 1 {
            let first = best(&results[0], 0, f64::min);
            for ((name, _), results) in ways.iter().zip(&results) {
                let median = best(results, 0, f64::min);
                println!("connect{with}, {name:<40} {median:>10.1} us {:>+8.1} us", median - first);
            }
        }
        tell_rates(&format!("connects by {threads}{with}"), "a second", &ways, 1, &results);
    };
    run("", 1);
    run("", 4);
    stage.cluster.apply(&policies(3));
    let written = || fs::read_dir(stage.cluster.home().join("policies")).map_or(0, Iterator::count);
    until(|| written() >= 5);
    run(" with 3 policies", 1);
}

/// Measures requests over persistent connections, and throughput. Both ends are pinned to one core, because the choice of cores otherwise
/// changes the results by a factor of two.
fn traffic() {
    let stage = Stage::of("--pinned, serve");
    for connections in [1, 16] {
        let direct = format!("requests {}:{PORT} any {connections} --pinned", stage.pod);
        let service = format!("requests {}:{PORT} any {connections} --pinned", stage.service);
        let ways: [WayTo; 2] =
            [("direct", Box::new(|| outside_client(&direct))), ("by ClusterIP", Box::new(|| stage.inside(&service)))];
        tell_rates(&format!("keep-alive requests over {connections}"), "a second", &ways, 0, &compare(&ways));
    }
    let direct = format!("bytes {}:{} --pinned", stage.pod, PORT + 1);
    let service = format!("bytes {}:{} --pinned", stage.service, PORT + 1);
    let ways: [WayTo; 2] =
        [("direct", Box::new(|| outside_client(&direct))), ("by ClusterIP", Box::new(|| stage.inside(&service)))];
    tell_rates("throughput", "MB/s", &ways, 0, &compare(&ways));
}

/// nginx' module for TCP, when it is not built in.
const STREAM: &str = "ngx_stream_module.so";

/// Folders where nginx may have modules; `NGINX_MODULES` names another.
fn modules() -> impl Iterator<Item = PathBuf> {
    let said = std::env::var_os("NGINX_MODULES").map(PathBuf::from);
    said.into_iter().chain(["/usr/lib/nginx/modules", "/usr/share/nginx/modules"].map(PathBuf::from))
}

/// Another proxy with its own configuration. `None` when it is not installed.
struct Rival(Child);

impl Rival {
    fn nginx(folder: &Path, part: &str) -> Option<Rival> {
        let head = "daemon off; master_process off; worker_rlimit_nofile 10000; error_log stderr crit; pid nginx.pid;\nevents { worker_connections 4096; }\n";
        let is_part = |folder: &PathBuf| part.starts_with("stream") && folder.join(STREAM).exists();
        let load =
            modules().find(is_part).map_or(String::new(), |at| format!("load_module {};\n", at.join(STREAM).display()));
        let file = folder.join("nginx.conf");
        fs::write(&file, format!("{load}{head}{part}")).expect("a configuration");
        let nginx = || {
            let mut nginx = Command::new("nginx");
            nginx.arg("-p").arg(folder).arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
            nginx
        };
        nginx().arg("-t").status().ok().filter(|status| status.success())?;
        nginx().spawn().ok().map(Rival)
    }

    fn haproxy(folder: &Path, part: &str) -> Option<Rival> {
        let file = folder.join("haproxy.cfg");
        fs::write(&file, part).expect("a configuration");
        let mut haproxy = Command::new("haproxy");
        haproxy.arg("-db").arg("-f").arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Rival)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn said_of(name: &str, rival: &Option<Rival>) {
    if rival.is_none() {
        println!("{name} is not installed here (or cannot do it): not compared");
    }
}

/// Measures programs outside of pods that use a Service through the proxy; compared with nginx and HAProxy in TCP mode.
fn outside() {
    let stage = Stage::new();
    let folder = tempfile::tempdir().expect("a folder");
    let servers: String = (0..2u16)
        .map(|at| {
            format!("server {{ listen 127.0.0.1:{}; proxy_pass {}:{}; }}\n", PORT + 20 + at, stage.pod, PORT + at)
        })
        .collect();
    let nginx = Rival::nginx(folder.path(), &format!("stream {{\n{servers}}}\n"));
    said_of("nginx in TCP mode", &nginx);
    let listens: String = (0..2u16)
        .map(|at| {
            format!("listen l{at}\n  bind 127.0.0.1:{}\n  server s {}:{}\n", PORT + 30 + at, stage.pod, PORT + at)
        })
        .collect();
    let limits = "  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n";
    let haproxy = Rival::haproxy(
        folder.path(),
        &format!("global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode tcp\n  option splice-auto\n{limits}{listens}"),
    );
    said_of("HAProxy", &haproxy);
    let measure = |what: &str, unit: &str, line: &dyn Fn(&str, u16) -> String, port: u16, at: usize| {
        let lines = [
            ("direct", line(&stage.pod, port)),
            ("the host proxy", line(&stage.service, port)),
            ("nginx", line("127.0.0.1", port + 20)),
            ("HAProxy", line("127.0.0.1", port + 30)),
        ];
        let is_there = |name: &str| (name != "nginx" || nginx.is_some()) && (name != "HAProxy" || haproxy.is_some());
        let ways: Vec<WayTo> = lines
            .iter()
            .filter(|(name, _)| is_there(name))
            .map(|(name, line)| (*name, Box::new(move || outside_client(line)) as Box<dyn Fn() -> Vec<f64>>))
            .collect();
        tell_rates(what, unit, &ways, at, &compare(&ways));
    };
    for connections in [1, 16, 256] {
        let line = |ip: &str, port: u16| format!("requests {ip}:{port} any {connections}");
        measure(&format!("from outside, keep-alive over {connections}"), "a second", &line, PORT, 0);
    }
    measure("from outside, connection and request", "a second", &|ip, port| format!("fresh {ip}:{port} 4"), PORT, 1);
    measure("from outside, throughput", "MB/s", &|ip, port| format!("bytes {ip}:{port}"), PORT + 1, 0);
}

/// Measures HTTP through an Ingress; compared with nginx as a reverse proxy.
fn ingress() {
    let stage = Stage::new();
    stage.cluster.apply(&format!(
        "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: web}}, spec: {{rules: [{{host: web.example, http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: server, port: {{number: {PORT}}}}}}}}}]}}}}]}}}}"
    ));
    let status = "{.status.loadBalancer.ingress[0].ip}:{.status.loadBalancer.ingress[0].ports[0].port}";
    let door = stage.cluster.wait_for("the Ingress answers", || {
        let door = stage.cluster.read("ingress/web", status);
        connects_to(&door).then_some(door)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let nginx = Rival::nginx(
        folder.path(),
        &format!(
            "http {{ access_log off; keepalive_requests 1000000; upstream web {{ server {}:{PORT}; keepalive 64; keepalive_requests 1000000; }}\nserver {{ listen 127.0.0.1:{}; location / {{ \
             proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}",
            stage.pod,
            PORT + 20
        ),
    );
    said_of("nginx", &nginx);
    for connections in [1, 16, 256] {
        let line = |place: &str| format!("requests {place} web.example {connections}");
        let lines = [
            ("direct", line(&format!("{}:{PORT}", stage.pod))),
            ("the Ingress proxy", line(&door)),
            ("nginx", line(&format!("127.0.0.1:{}", PORT + 20))),
        ];
        let ways: Vec<WayTo> = lines
            .iter()
            .filter(|(name, _)| *name != "nginx" || nginx.is_some())
            .map(|(name, line)| (*name, Box::new(move || outside_client(line)) as Box<dyn Fn() -> Vec<f64>>))
            .collect();
        tell_rates(&format!("HTTP through an Ingress over {connections}"), "a second", &ways, 0, &compare(&ways));
    }
}

const SERVICES: usize = 5_000;
const ENDPOINTS: usize = 10;
/// Port of all manually written endpoints.
const BEHIND: u16 = PORT + 40;
/// Number of measured changes.
const CHANGES: usize = 200;
/// Span in which connections to an endpoint that has left may still arrive.
const LATE: Duration = Duration::from_millis(20);

/// Returns an address of this machine that no cluster uses, for each endpoint.
fn endpoint(number: usize, at: usize) -> Ipv4Addr {
    let count = number * ENDPOINTS + at;
    Ipv4Addr::new(127, 253, (count / 254) as u8, (count % 254 + 1) as u8)
}

/// Returns the EndpointSlice of a Service without a selector: all endpoints but one are ready.
fn by_hand(number: usize, unready: usize) -> String {
    let one = |at| format!("{{addresses: [{}], conditions: {{ready: {}}}}}", endpoint(number, at), at != unready);
    let endpoints: Vec<String> = (0..ENDPOINTS).map(one).collect();
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s{number}, labels: {{kubernetes.io/service-name: s{number}}}}}, \
         addressType: IPv4, ports: [{{port: {BEHIND}}}], endpoints: [{}]}}\n---\n",
        endpoints.join(", ")
    )
}

/// First and last connection to each endpoint since the last reset.
#[derive(Default)]
struct Visits(Mutex<HashMap<Ipv4Addr, (Instant, Instant)>>);

impl Visits {
    /// Accepts connections to all endpoints, and records the address of each.
    fn watch() -> Arc<Visits> {
        let (visits, listener) = (Arc::new(Visits::default()), TcpListener::bind(("0.0.0.0", BEHIND)).expect("a port"));
        let noted = visits.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (now, at) = (Instant::now(), stream.local_addr());
                if let Ok(SocketAddr::V4(at)) = at {
                    noted.0.lock().expect("not poisoned").entry(*at.ip()).or_insert((now, now)).1 = now;
                }
            }
        });
        visits
    }

    fn forget(&self) {
        self.0.lock().expect("not poisoned").clear();
    }

    fn at(&self, endpoint: Ipv4Addr) -> Option<(Instant, Instant)> {
        self.0.lock().expect("not poisoned").get(&endpoint).copied()
    }
}

/// Measures many Services: from the change of an endpoint until a pod uses another one, and the resource usage.
fn scale() {
    let (cluster, visits) = (Cluster::new(), Visits::watch());
    let plane = cluster.watch();
    let service = |number: usize| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: s{number}}}, spec: {{ports: [{{port: 80}}]}}}}\n---\n"
        )
    };
    let start = Instant::now();
    for chunk in (0..SERVICES).collect::<Vec<_>>().chunks(500) {
        let last = ENDPOINTS - 1;
        cluster.apply(&chunk.iter().map(|number| service(*number) + &by_hand(*number, last)).collect::<String>());
    }
    let count = SERVICES * ENDPOINTS;
    println!("{SERVICES} Services with {count} endpoints: applied in {:.1} s", start.elapsed().as_secs_f64());
    let routes = cluster.home().join("routes");
    let is_whole =
        |file: &Path| fs::read_to_string(file).is_ok_and(|text| text.matches(" 127.253.").count() == ENDPOINTS - 1);
    let whole = || fs::read_dir(&routes).into_iter().flatten().flatten().filter(|file| is_whole(&file.path())).count();
    until(|| {
        std::thread::sleep(Duration::from_millis(100));
        whole() == SERVICES
    });
    println!("all in the table {:.1} s after the first was applied", start.elapsed().as_secs_f64());
    let mut client = Follower::new(&cluster);
    let (mut left, mut come, mut committed) = (Vec::new(), Vec::new(), Vec::new());
    for number in (0..SERVICES).step_by(SERVICES / CHANGES) {
        let (leaves, comes) = (endpoint(number, 0), endpoint(number, ENDPOINTS - 1));
        visits.forget();
        client.follow(&format!("{}:80", cluster.read(&format!("service/s{number}"), "{.spec.clusterIP}")));
        until(|| visits.at(leaves).is_some());
        let start = Instant::now();
        cluster.apply(&by_hand(number, 0));
        let applied = Instant::now();
        until(|| visits.at(comes).is_some());
        let there = visits.at(comes).expect("come to").0;
        // Connections that are still on their way arrive meanwhile.
        until(|| visits.at(comes).is_some_and(|(_, last)| last.saturating_duration_since(there) > LATE));
        left.push(visits.at(leaves).expect("come to").1.saturating_duration_since(start));
        come.push(there - start);
        committed.push(there.saturating_duration_since(applied));
    }
    client.follow("");
    tell("an endpoint leaves: from the start of `apply` to the last connection there", &mut left);
    tell("another comes: from the start of `apply` to the first connection there", &mut come);
    tell("the same, from the end of `apply`", &mut committed);
    let gateway = cluster.gateways().into_iter().map(resident).collect::<Vec<_>>().join(" ");
    println!("resident: control plane {}, gateway {gateway}", resident(plane.pid()));
    kill_each(&cluster, "beside all these, a process is killed, until its Service does not lead there");
    // Another request for each, when a new control plane starts.
    plane.end("KILL");
    visits.forget();
    client.follow(&format!("{}:80", cluster.read("service/s7", "{.spec.clusterIP}")));
    let start = Instant::now();
    let next = cluster.watch();
    cluster.apply(&by_hand(7, 0));
    until(|| visits.at(endpoint(7, ENDPOINTS - 1)).is_some());
    println!("a new control plane, until a change has its effect: {:.2} s", start.elapsed().as_secs_f64());
    println!("resident: control plane {}", resident(next.pid()));
}

/// A pod that connects repeatedly to an address that the test sends it.
struct Follower(TcpStream);

impl Follower {
    fn new(cluster: &Cluster) -> Follower {
        let orders = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = orders.local_addr().expect("bound");
        let command = format!("[\"{}\", client, follow, \"{place}\"]", this());
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: client, annotations: {{kloop.dev/filesystem: host}}}}, spec: {{terminationGracePeriodSeconds: 1, \
             containers: [{{name: main, image: busybox, command: {command}}}]}}}}"
        ));
        Follower(orders.accept().expect("the pod calls").0)
    }

    /// Connects to this address; pauses for an empty one.
    fn follow(&mut self, place: &str) {
        writeln!(self.0, "{place}").expect("the pod lives");
    }
}

fn resident(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn tell(what: &str, samples: &mut [Duration]) {
    samples.sort();
    let part = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!("{what:<80} p50 {:8.2} ms  p99 {:8.2} ms  of {}", part(0.5), part(0.99), samples.len());
}

/// Measures the time from the death of a process until no pod is routed to it.
fn death() {
    let cluster = Cluster::new();
    drop(cluster.watch());
    kill_each(&cluster, "a process is killed, until its Service does not lead there any more");
}

fn kill_each(cluster: &Cluster, what: &str) {
    // A restarted pod is not ready for a while. Each of 5,000 Services would add seven variables to each pod.
    let ready = "readinessProbe: {exec: {command: [\"true\"]}, initialDelaySeconds: 5, periodSeconds: 1}";
    cluster.apply(&format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: 40, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: \
         {{labels: {{app: web}}}}, spec: {{enableServiceLinks: false, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: busybox, command: [sleep, \"10000\"], {ready}}}]}}}}}}}}\n---\n\
         {{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{selector: {{app: web}}, ports: [{{port: 80}}]}}}}"
    ));
    let pods = cluster.ready_pods("app=web", 40);
    let file: PathBuf = cluster.home().join("routes").join(cluster.read("service/web", "{.spec.clusterIP}"));
    let mut samples = Vec::new();
    for pod in pods {
        let place = format!(" {}:80", cluster.read(&format!("pod/{pod}"), "{.status.podIP}"));
        let pid = cluster.pid(&pod);
        until(|| fs::read_to_string(&file).is_ok_and(|text| text.contains(&place)));
        let start = SystemTime::now();
        signal(pid, "KILL");
        until(|| fs::read_to_string(&file).is_ok_and(|text| !text.contains(&place)));
        samples.push(start.elapsed().expect("a clock"));
    }
    tell(what, &mut samples);
}
