//! The REST API as clients measure it: requests and patches a second, delays of watches, long lists, and the start of the server.
//!
//! `cargo bench --bench api [-- start|get|patch|watch|list]`. Server and clients share the machine, so run it while nothing else does.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Number of clients that send requests at the same time.
const CLIENTS: usize = 16;
/// Duration of each measurement of a rate.
const SPAN: Duration = Duration::from_secs(3);
/// Number of objects in the long list.
const PODS: usize = 10_000;
/// Number of watched changes.
const CHANGES: usize = 200;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let parts: [(&str, fn()); 5] = [("start", start), ("get", get), ("patch", patch), ("watch", watch), ("list", list)];
    for (_, measure) in parts.iter().filter(|(part, _)| named.is_empty() || named.iter().any(|word| word == part)) {
        measure();
    }
}

/// A server of its own state, which ends with this value.
struct Server {
    folder: PathBuf,
    process: Child,
    address: String,
}

impl Server {
    fn start(name: &str, manifest: &str) -> Server {
        let folder = std::env::temp_dir().join(format!("kloop-bench-api-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its mode");
        let kloop = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_kloop"));
            command.args(args).env("KLOOP_STATE", folder.join("state")).stderr(Stdio::null()).stdout(Stdio::piped());
            command
        };
        let file = folder.join("objects.yaml");
        fs::write(&file, manifest).expect("a manifest");
        let applied = kloop(&["apply", "-f", file.to_str().expect("text")]).output().expect("kloop runs");
        assert!(applied.status.success() || manifest.is_empty(), "the objects are there");
        let mut process = kloop(&["serve", "--no-token", "--port=0"]).spawn().expect("kloop runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("Starting to serve on ").expect("an address").to_owned();
        Server { folder, process, address }
    }

    fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_nodelay(true).expect("an option");
        Connection { reader: BufReader::with_capacity(1 << 16, stream) }
    }

    /// Returns the resident memory of the server in megabytes, or its maximum.
    fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("a process");
        let line = status.lines().find(|line| line.starts_with(field)).expect("a field");
        line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).expect("a number") / 1024
    }
}

impl Server {
    /// Makes the maximum of memory the present one.
    fn forget_most_memory(&self) {
        drop(fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5"));
    }

    fn stop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A connection that is kept open.
struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    fn send(&mut self, method: &str, path: &str, accept: &str, (content_type, body): (&str, &str)) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.reader.get_mut().write_all(head.as_bytes()).expect("sent");
    }

    /// Reads the head of an answer; returns the length of its body, or `None` when it is chunked.
    fn read_head(&mut self) -> Option<usize> {
        let (mut line, mut length) = (String::new(), None);
        self.reader.read_line(&mut line).expect("a status");
        assert!(line.contains(" 200 ") || line.contains(" 201 "), "{line}");
        while !line.trim().is_empty() {
            line.clear();
            self.reader.read_line(&mut line).expect("a header");
            let header = line.to_ascii_lowercase();
            length = header.strip_prefix("content-length:").and_then(|text| text.trim().parse().ok()).or(length);
        }
        length
    }

    /// Reads a chunk; an empty one ends the answer, and there is none when the server has gone.
    fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        self.reader.read_line(&mut size).ok().filter(|length| *length > 0)?;
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).expect("a size") + 2];
        self.reader.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(chunk.len() - 2);
        Some(chunk)
    }

    /// Sends a request, and returns the length of the answer's body.
    fn ask(&mut self, method: &str, path: &str, accept: &str, body: (&str, &str)) -> usize {
        self.send(method, path, accept, body);
        match self.read_head() {
            Some(length) => {
                let mut whole = vec![0; length];
                self.reader.read_exact(&mut whole).expect("a body");
                length
            }
            None => {
                std::iter::from_fn(|| self.read_chunk()).map(|chunk| chunk.len()).take_while(|length| *length > 0).sum()
            }
        }
    }
}

fn maps(count: usize) -> String {
    let map =
        |index| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{index}}}\ndata: {{key: value}}\n");
    (0..count).map(map).collect::<Vec<_>>().join("---\n")
}

/// Repeats an action of each client for a while, and prints rate, median and 99th percentile.
fn print_rate(what: &str, server: &Server, act: impl Fn(&mut Connection, usize, usize) + Sync) {
    let begin = Barrier::new(CLIENTS);
    let client = |number: usize| {
        let mut connection = server.connect();
        act(&mut connection, number, 0);
        begin.wait();
        let (start, mut times) = (Instant::now(), Vec::new());
        while start.elapsed() < SPAN {
            let sent = Instant::now();
            act(&mut connection, number, times.len() + 1);
            times.push(sent.elapsed());
        }
        times
    };
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let rate = times.len() as f64 / SPAN.as_secs_f64();
    println!("{what}, {CLIENTS} clients: {rate:.0} a second, {}", spread(times));
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    format!("p50 {:.2} ms, p99 {:.2} ms", at(0.5), at(0.99))
}

/// Measures the time from the start of the server to its first answer.
fn start() {
    let mut server = Server::start("start", &maps(1));
    server.stop();
    let begin = |_| {
        let begun = Instant::now();
        let mut process = Command::new(env!("CARGO_BIN_EXE_kloop"))
            .args(["serve", "--no-token", "--port=0"])
            .env("KLOOP_STATE", server.folder.join("state"))
            .stderr(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kloop runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("Starting to serve on ").expect("an address");
        let reader = BufReader::new(TcpStream::connect(address).expect("connected"));
        Connection { reader }.ask("GET", &format!("{MAPS}/map-0"), JSON, (JSON, ""));
        let took = begun.elapsed();
        drop(process.kill());
        drop(process.wait());
        took
    };
    println!("start to first answer: {}", spread((0..20).map(begin).collect()));
}

fn get() {
    let server = Server::start("get", &maps(CLIENTS));
    for accept in [JSON, PROTOBUF] {
        print_rate(&format!("GET as {accept}"), &server, |connection, number, _| {
            connection.ask("GET", &format!("{MAPS}/map-{number}"), accept, (JSON, ""));
        });
    }
}

fn patch() {
    let server = Server::start("patch", &maps(CLIENTS));
    print_rate("PATCH", &server, |connection, number, turn| {
        let change = format!(r#"{{"data":{{"key":"{turn}"}}}}"#);
        connection.ask("PATCH", &format!("{MAPS}/map-{number}"), JSON, ("application/merge-patch+json", &change));
    });
}

/// Measures the time from sending a change until all of some watchers have read it.
fn watch() {
    for watchers in [1, 500] {
        let server = Server::start(&format!("watch-{watchers}"), &maps(1));
        let (tell, told) = channel();
        for _ in 0..watchers {
            let (tell, mut connection) = (tell.clone(), server.connect());
            connection.send("GET", &format!("{MAPS}?watch=true&resourceVersion=0"), JSON, (JSON, ""));
            std::thread::spawn(move || {
                connection.read_head();
                while let Some(chunk) = connection.read_chunk() {
                    if tell.send((chunk, Instant::now())).is_err() {
                        return;
                    }
                }
            });
        }
        let mut writer = server.connect();
        let mut times = Vec::new();
        for turn in 0..CHANGES {
            let change = format!(r#"{{"data":{{"key":"turn-{turn}"}}}}"#);
            let begun = Instant::now();
            writer.ask("PATCH", &format!("{MAPS}/map-0"), JSON, ("application/merge-patch+json", &change));
            let mark = format!("turn-{turn}\"");
            let is_this = |chunk: &[u8]| chunk.windows(mark.len()).any(|part| part == mark.as_bytes());
            let reads = told.iter().filter(|(chunk, _)| is_this(chunk)).take(watchers);
            times.extend(reads.map(|(_, read)| read - begun));
        }
        println!("change to {watchers} watchers: {}", spread(times));
    }
}

fn list() {
    let pod = |index| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{index}, labels: {{app: web}}}}\nspec: {{containers: [{{name: c, image: \
             nginx, resources: {{requests: {{cpu: 1m}}}}, readinessProbe: {{httpGet: {{path: /, port: 80}}}}}}]}}\n"
        )
    };
    let server = Server::start("list", &(0..PODS).map(pod).collect::<Vec<_>>().join("---\n"));
    let idle = server.memory("VmRSS");
    for accept in [JSON, TABLE, PROTOBUF] {
        let list = |_| {
            let begun = Instant::now();
            let length = server.connect().ask("GET", "/api/v1/pods", accept, (JSON, ""));
            (begun.elapsed(), length)
        };
        let (times, lengths): (Vec<Duration>, Vec<usize>) = (0..5).map(list).unzip();
        println!("list of {PODS} pods as {accept}, {} MB: {}", lengths[0] / 1_000_000, spread(times));
    }
    println!("memory: {idle} MB when idle, {} MB at most", server.memory("VmHWM"));
    for accept in [JSON, TABLE, PROTOBUF] {
        server.forget_most_memory();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| server.connect().ask("GET", "/api/v1/pods", accept, (JSON, "")));
            }
        });
        let (took, most) = (begun.elapsed().as_millis(), server.memory("VmHWM"));
        println!("four lists at once as {accept}: {took} ms, {most} MB at most");
    }
}
