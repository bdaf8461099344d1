//! Replays the recorded conversations with the built binary and counts the answers that equal Kubernetes'.
//!
//! The minimum for each conversation is in [`floors`]; counts only rise. `KLOOP_REPLAY=NAME,NAME` chooses conversations;
//! `KLOOP_REPLAY_OUT=FOLDER` writes the differences there, one file per conversation.

#[path = "replay/cluster.rs"]
mod cluster;
#[path = "replay/compare.rs"]
mod compare;
#[path = "replay/floors.rs"]
mod floors;
#[path = "replay/http.rs"]
mod http;
#[path = "replay/mask.rs"]
mod mask;
#[path = "replay/nodes.rs"]
mod nodes;

use crate::golden::{self, Exchange, Part, Step};
use cluster::{Answer, Cluster};
use compare::{Letters, Match};
use mask::Masks;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// The number of conversations that are replayed at once: they mostly wait.
const AT_ONCE: usize = 6;

/// Actions that the recording of a CronJob does not show: waiting for the first success, and suspending it.
const UNTIL_FIRED: &str = "kubectl wait --for=jsonpath='{.status.lastSuccessfulTime}' cronjob/tick --timeout=100s && \
     kubectl patch cronjob tick -p '{\"spec\":{\"suspend\":true}}'";

/// The comparison of one conversation's answers.
#[derive(Default)]
struct Count {
    steps: usize,
    exact: usize,
    soft: usize,
    code: usize,
    /// The differences, as text.
    differences: String,
}

#[test]
fn conversations_with_kubernetes_are_repeated() {
    let Some(folder) = golden::recordings() else { return };
    let counts = Mutex::new(BTreeMap::new());
    let chosen = std::env::var("KLOOP_REPLAY").ok();
    let waiting = Mutex::new(scenarios(&folder, chosen.as_deref()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(scenario) = waiting.lock().expect("lock").pop() else { return };
                    let count = replay(&folder.join(&scenario), &scenario);
                    counts.lock().expect("lock").insert(scenario, count);
                }
            });
        }
    });
    let mut counts = counts.into_inner().expect("lock");
    // Some conversations contain time limits: one that failed on a busy machine is repeated alone.
    for (scenario, count) in counts.iter_mut().filter(|(scenario, count)| below_floor(scenario, count).is_some()) {
        *count = replay(&folder.join(scenario), scenario);
    }
    report(&counts);
    let below: Vec<String> = counts.iter().filter_map(|(scenario, count)| below_floor(scenario, count)).collect();
    assert!(below.is_empty(), "answers that equalled Kubernetes' no longer do:\n{}", below.join("\n"));
}

/// Returns the conversations to replay, the longest last, because they are taken from the end.
fn scenarios(folder: &Path, chosen: Option<&str>) -> Vec<String> {
    let all = std::fs::read_dir(folder).expect("recordings").map(|entry| entry.expect("entry"));
    let all = all.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = all
        .filter(|name| chosen.is_none_or(|chosen| chosen.split(',').any(|one| one == name)))
        .filter(|name| floors::out_of_scope(name).is_none())
        .collect();
    all.sort_by_key(|name| (golden::conversation(name).iter().map(weight).sum::<u64>(), name.clone()));
    all
}

fn weight(part: &Part) -> u64 {
    match part {
        Part::Run(step) if step.command.contains("job-name=brief") => 600,
        Part::Run(step) if step.command.contains("kubectl wait") => 20,
        Part::Run(_) => 1,
        Part::Settle => 20,
        Part::Sleep(seconds) => seconds * 10,
        Part::Http(_) => 1,
    }
}

fn replay(folder: &Path, scenario: &str) -> Count {
    let parts = golden::conversation(scenario);
    let masks = Masks::new(own_text(folder, &parts));
    let mut cluster = Cluster::start(folder);
    let (mut letters, mut count) = (Letters::default(), Count::default());
    let mut client: Option<http::Client> = None;
    for part in &parts {
        match part {
            Part::Http(exchange) => {
                http::prepare(scenario, exchange, &cluster);
                let client = client.get_or_insert_with(|| http::Client::start(&cluster));
                let answer = client.ask(exchange);
                count.judge_http(exchange, &answer, &masks, &mut letters);
            }
            Part::Sleep(seconds) => std::thread::sleep(Duration::from_secs(*seconds)),
            Part::Settle if !cluster.settle() => count.differences.push_str("~ settle took too long\n\n"),
            Part::Settle => {}
            Part::Run(step) => {
                // The output in a recorded command was masked too.
                let command = step.command.replace("<time>", "2026-01-01T00:00:00Z");
                cluster.catch_up();
                let answer = cluster.run(&command, &step.stdin);
                if ["node-commands", "preemption"].contains(&scenario) {
                    nodes::prepare(&cluster, &answer.stdout);
                }
                if scenario == "cronjob-fires" && step.command.contains("job-name=brief") {
                    cluster.run(UNTIL_FIRED, "");
                }
                count.judge(step, &answer, &masks, &mut letters);
            }
        }
    }
    if let Some(said) = cluster.died() {
        writeln!(count.differences, "the control plane ended: {said}").expect("text");
    }
    if let Some(out) = std::env::var_os("KLOOP_REPLAY_OUT") {
        std::fs::write(Path::new(&out).join(scenario), &count.differences).expect("differences");
    }
    count
}

/// Returns the text of a scenario's files and commands.
fn own_text(folder: &Path, parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        if let Part::Http(exchange) = part {
            text.push_str(&exchange.path);
            text.push_str(&exchange.body);
        }
        if let Part::Run(step) = part {
            text.push_str(&step.command);
            text.push_str(&step.stdin);
        }
    }
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "conversation.txt") {
                text.push_str(&String::from_utf8_lossy(&std::fs::read(path).expect("file")));
            }
        }
    }
    text
}

impl Count {
    fn judge(&mut self, step: &Step, answer: &Answer, masks: &Masks, letters: &mut Letters) {
        let (out, err) = (masks.said(&answer.stdout), masks.said(&answer.stderr));
        let (recorded_out, recorded_err) = (masks.recorded(&step.stdout), masks.recorded(&step.stderr));
        // Rows that are sorted by different hashes have another order.
        let is_table = step.stdout.starts_with("NAME ") && recorded_out.contains("<hash>");
        let near_out = letters.compare(&recorded_out, &out, step.sorted || is_table);
        let near = near_out.min(letters.compare(&recorded_err, &err, false));
        let same_code = answer.code == step.code;
        self.steps += 1;
        self.code += usize::from(same_code);
        match near {
            Match::Exact if same_code => return self.exact += 1,
            Match::Exact | Match::None => {}
            Match::Soft => self.soft += 1,
        }
        let mut tell = |mark: &str, text: &str| {
            text.lines().for_each(|line| writeln!(self.differences, "{mark}{line}").expect("text"));
        };
        tell("$ ", &format!("{} [{near:?}]", step.command));
        tell("", &difference(&recorded_out, &out));
        tell("! ", &difference(&recorded_err, &err));
        tell("", &format!("? {} {}\n\n", step.code, answer.code));
    }
}

impl Count {
    /// Compares the answer to a plain request: recorded headers count with the body.
    fn judge_http(&mut self, exchange: &Exchange, answer: &http::Answer, masks: &Masks, letters: &mut Letters) {
        let step = Step {
            command: format!("{} {}", exchange.method, exchange.path),
            stdout: format!("{}\n{}", exchange.head(), http::plain(&exchange.answer, "")),
            ..Step::default()
        };
        let said = format!("{}\n{}", answer.head(exchange), http::plain(&answer.body, &exchange.only));
        self.judge(&step, &Answer { stdout: said, stderr: String::new(), code: 0 }, masks, letters);
    }
}

/// Returns the lines that only one of two texts has.
fn difference(recorded: &str, said: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), said.lines().collect());
    // Longest common subsequence; answers are short.
    let mut longest = vec![vec![0; new.len() + 1]; old.len() + 1];
    for (i, one) in old.iter().enumerate().rev() {
        for (j, other) in new.iter().enumerate().rev() {
            longest[i][j] =
                if one == other { longest[i + 1][j + 1] + 1 } else { longest[i + 1][j].max(longest[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            writeln!(text, "-{}", old[i]).expect("text");
            i += 1;
        } else {
            writeln!(text, "+{}", new[j]).expect("text");
            j += 1;
        }
    }
    text
}

fn report(counts: &BTreeMap<String, Count>) {
    println!("{:<26} {:>5} {:>5} {:>5} {:>5}", "conversation", "steps", "exact", "soft", "code");
    let (mut steps, mut exact, mut soft, mut code) = (0, 0, 0, 0);
    for (scenario, count) in counts {
        println!("{scenario:<26} {:>5} {:>5} {:>5} {:>5}", count.steps, count.exact, count.soft, count.code);
        (steps, exact, soft) = (steps + count.steps, exact + count.exact, soft + count.soft);
        code += count.code;
    }
    for (scenario, why) in floors::OUT_OF_SCOPE {
        println!("{scenario:<26} not there yet: {why}");
    }
    let share = 100.0 * exact as f64 / steps.max(1) as f64;
    println!("replayed {steps} steps: {exact} exact ({share:.1} %), {soft} soft, {code} exit codes");
}

fn below_floor(scenario: &str, count: &Count) -> Option<String> {
    let floor = floors::of(scenario);
    (count.exact < floor).then(|| format!("{scenario}: {} exact, were {floor}\n{}", count.exact, count.differences))
}
