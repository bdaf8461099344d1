//! Masks parts that differ between any two recordings, as `golden/README.md` says.

use regex::{Captures, Regex};
use std::sync::LazyLock;

/// Letters in Kubernetes' random names and hashes.
const SAFE: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Columns whose ages are masked.
const AGES: [&str; 5] = ["AGE", "LAST SEEN", "FIRST SEEN", "DURATION", "LAST SCHEDULE"];

/// A column that only kloop has.
const OWN_COLUMN: &str = "PID";

/// Columns whose padding is masked, besides those of [`AGES`].
const RAGGED: [&str; 5] = ["IP", "CLUSTER-IP", "EXTERNAL-IP", "ENDPOINTS", "PORT(S)"];

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("pattern"));
    };
}

pattern!(AGE, r"^(\d+[smhdy])+$");
pattern!(LAST_AGE, r"(?m)([^: ]  +)(\d+[smhdy])+$");
pattern!(LOG, r"(?m)^W<klog> \S+\] ");
pattern!(OVER, r"\(x\d+ over [0-9smhdy]+\)");
pattern!(LASTS, r"\(lasts [0-9smhdy]+\)");
pattern!(UID, r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b");
pattern!(TIME, r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)");
pattern!(GO_TIME, r"\b[12]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC");
pattern!(FILE_TIME, r"\b[12]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}");
pattern!(LONG_TIME, r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} [12]\d{3} \d\d:\d\d:\d\d [+-]\d{4}");
pattern!(REVISION, r#"((?:resourceVersion"?|Resource Version|resource version|in record|current)[: ( "]+)[1-9]\d*"#);
pattern!(POD_IP, r"\b127\.\d+\.(\d+)\.\d+\b");
pattern!(NODE_PORT, r"\b3[0-2]\d{3}\b");
pattern!(EVENT, r"\.[0-9a-f]{16}\b");
pattern!(MINUTE, r"-\d{8}\b");
pattern!(TEMPORARY, r#"/tmp/[^\s"':]*"#);
pattern!(PROGRAM, r"\bkloop\b([^.])");
static RANDOM: LazyLock<Regex> = LazyLock::new(|| Regex::new(&format!(r"([-_])([{SAFE}]{{5}})\b")).expect("pattern"));
static HASH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r#"([-=: "])([{SAFE}]{{7,10}})\b"#)).expect("pattern"));

/// The masks of one scenario.
pub struct Masks {
    /// The text of its files and commands, which is never masked.
    own: String,
}

impl Masks {
    /// `own`: the text of the scenario's files and commands.
    pub fn new(own: String) -> Masks {
        Masks { own }
    }

    /// Masks kloop's answer. Random letters become `<r:LETTERS>`.
    pub fn said(&self, text: &str) -> String {
        // Lines of kloop that kubectl does not print.
        let own = |line: &str| line.starts_with("hint: ") || line.contains(": not supported by kloop yet: ");
        let lines = text.lines().filter(|line| !own(line));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let text = PROGRAM.replace_all(&text, "kubectl$1");
        let text = LAST_AGE.replace_all(&tables(&text), "$1<age>").into_owned();
        let text = LASTS.replace_all(&OVER.replace_all(&text, "(<count>)"), "(lasts <age>)").into_owned();
        let text = self.unless_own(&UID, &text, |_| "<uid>".into());
        let text = LONG_TIME.replace_all(&TIME.replace_all(&text, "<time>"), "<time>").into_owned();
        let text = FILE_TIME.replace_all(&GO_TIME.replace_all(&text, "<time>"), "<time>").into_owned();
        let text = self.unless_own(&REVISION, &text, |found| format!("{}<rv>", &found[1]));
        let text = self.unless_own(&POD_IP, &text, |found| match found[1].parse::<u8>() {
            Ok(0) | Err(_) => found[0].to_owned(),
            Ok(1..128) => "<pod-ip>".into(),
            Ok(128..) => "<cluster-ip>".into(),
        });
        let text = self.unless_own(&NODE_PORT, &text, |found| match &found[0] {
            // The limits of the range itself.
            "30000" | "32767" => found[0].to_owned(),
            _ => "<node-port>".into(),
        });
        let text = EVENT.replace_all(&text, ".<event>");
        let text = self.unless_own(&MINUTE, &text, |_| "-<minute>".into());
        let text = TEMPORARY.replace_all(&text, "<tmp>");
        let text = self.unless_own(&RANDOM, &text, |found| format!("{}<r:{}>", &found[1], &found[2]));
        self.recorded(&text)
    }

    /// Masks the recorded answer, in which only hashes are left to mask.
    pub fn recorded(&self, text: &str) -> String {
        // A hash of digits is quoted in YAML.
        let text = LOG.replace_all(text, "W ");
        self.unless_own(&HASH, &text, |found| format!("{}<hash>", &found[1])).replace("\"<hash>\"", "<hash>")
    }

    fn unless_own(&self, pattern: &Regex, text: &str, mask: impl Fn(&Captures<'_>) -> String) -> String {
        let mask = |found: &Captures<'_>| {
            if self.own.contains(found[0].trim_start_matches([' ', '"'])) { found[0].to_owned() } else { mask(found) }
        };
        pattern.replace_all(text, mask).into_owned()
    }
}

/// Masks ages in tables, and the padding that depends on them.
fn tables(text: &str) -> String {
    let mut table: Option<Table> = None;
    let mut out = String::new();
    for line in text.lines() {
        if let Some(found) = Table::headed_by(line) {
            table = Some(found);
        } else if line.trim().is_empty() {
            table = None;
        }
        match table.as_ref().and_then(|table| table.row(line)) {
            Some(row) => out.push_str(&row),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// The column starts of a table, their names, and the minimum number of blanks between them.
struct Table {
    columns: Vec<(usize, String)>,
    gap: &'static str,
}

impl Table {
    fn headed_by(line: &str) -> Option<Table> {
        let columns = columns(line);
        let capitals = |name: &str| {
            name.chars().all(|c| c.is_ascii_uppercase() || " -()/".contains(c)) && name.starts_with(char::is_uppercase)
        };
        let has = |names: &[&str]| columns.iter().any(|(_, name)| names.contains(&name.as_str()));
        if columns.iter().all(|(_, name)| capitals(name)) && (has(&AGES) || has(&RAGGED)) {
            return Some(Table { columns, gap: "   " });
        }
        let events = ["Type", "Reason", "Age", "From", "Message"];
        let names: Vec<&str> = columns.iter().map(|(_, name)| name.as_str()).collect();
        (names == events).then_some(Table { columns, gap: "  " })
    }

    /// Returns the masked line; `None` where it does not fit the columns.
    fn row(&self, line: &str) -> Option<String> {
        let chars: Vec<char> = line.chars().collect();
        let mut out: String = chars.iter().take(self.columns[0].0).collect();
        for (number, (start, name)) in self.columns.iter().enumerate() {
            if *start > 0 && chars.get(start - 1).is_some_and(|before| *before != ' ') {
                return None;
            }
            if name == OWN_COLUMN {
                continue;
            }
            let next = self.columns.get(number + 1).map(|(next, _)| *next);
            let end = next.unwrap_or(chars.len()).min(chars.len());
            let cell: String = chars.get(*start..end).unwrap_or_default().iter().collect();
            let content = cell.trim_end();
            let aged = AGES.contains(&name.as_str()) || name == "Age";
            if content.is_empty() || !(aged || RAGGED.contains(&name.as_str())) {
                out.push_str(&cell);
                continue;
            }
            out.push_str(&if aged { age(content) } else { content.to_owned() });
            if next.is_some() {
                out.push_str(self.gap);
            }
        }
        let own_is_last = self.columns.last().is_some_and(|(_, name)| name == OWN_COLUMN);
        Some(if own_is_last { out.trim_end().to_owned() } else { out })
    }
}

fn age(cell: &str) -> String {
    match cell.split_once(' ') {
        Some((first, rest)) if AGE.is_match(first) => format!("<age> {rest}"),
        _ if AGE.is_match(cell) => "<age>".into(),
        _ => cell.to_owned(),
    }
}

/// Returns the cells of a header, which are separated by at least two blanks, with their positions.
fn columns(line: &str) -> Vec<(usize, String)> {
    let mut columns: Vec<(usize, String)> = Vec::new();
    let mut blanks = 2;
    for (place, char) in line.chars().enumerate() {
        match columns.last_mut() {
            _ if char == ' ' => blanks += 1,
            Some((_, name)) if blanks < 2 => {
                name.extend(std::iter::repeat_n(' ', blanks));
                name.push(char);
                blanks = 0;
            }
            _ => {
                columns.push((place, char.to_string()));
                blanks = 0;
            }
        }
    }
    if columns.is_empty() {
        columns.push((0, String::new()));
    }
    columns
}

#[test]
fn random_values_are_masked() {
    let masks = Masks::new("name: keep-bcdfg 127.9.5.5".into());
    let cases = [
        ("NAME   AGE   IP\nweb    14s   127.7.1.20\n", "NAME   AGE   IP\nweb    <age>   <pod-ip>\n"),
        ("a   1/1   5m3s\n", "a   1/1   <age>\n"),
        ("  cpu:   5m\n", "  cpu:   5m\n"),
        ("NAME   DURATION   AGE\nj                 5s\n", "NAME   DURATION   AGE\nj                 <age>\n"),
        (
            "  Type  Reason  Age              From  Message\n  N     R       3s (x2 over 5s)  f     m\n",
            "  Type  Reason  Age  From  Message\n  N     R       <age> (<count>)  f     m\n",
        ),
        ("resourceVersion: \"1234\"\n", "resourceVersion: \"<rv>\"\n"),
        ("web-7c7c959dd7-x2x4z keep-bcdfg 127.9.5.5\n", "web-<hash>-<r:x2x4z> keep-bcdfg 127.9.5.5\n"),
        ("Warning: spec.hostPID: not supported by kloop yet: x\n", ""),
        ("See 'kloop get --help', kloop.dev\nhint: x\n", "See 'kubectl get --help', kloop.dev\n"),
    ];
    for (said, masked) in cases {
        assert_eq!(masks.said(said), masked);
    }
}
