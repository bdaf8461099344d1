use super::*;
use crate::go::json::{to_json, to_json_pretty};
use serde_json::json;
use std::path::PathBuf;

fn parse_one(text: &str) -> Value {
    let mut all = documents(text).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0).value
}

fn error(text: &str) -> String {
    documents(text).unwrap_err().to_string()
}

#[test]
fn plain_scalars_follow_yaml_1_1() {
    for (text, wanted) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("y", json!(true)),
        ("yES", json!("yES")),
        ("t", json!("t")),
        ("'yes'", json!("yes")),
        ("!!str yes", json!("yes")),
        ("!!bool 'yes'", json!(true)),
        ("!mine 5", json!("5")),
        ("!!float 1", json!(1)),
        ("0644", json!(420)),
        ("014", json!(12)),
        ("0o14", json!(12)),
        ("0x1F", json!(31)),
        ("-0x1F", json!(-31)),
        ("0b11", json!(3)),
        ("+1", json!(1)),
        ("1_000", json!(1000)),
        ("0123456789", json!(123456789)),
        ("08", json!(8)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1.", json!(1)),
        ("1e400", json!("1e400")),
        ("9223372036854775808", json!(9223372036854775808_u64)),
        ("18446744073709551616", json!(18446744073709551616.0)),
        ("12:30:45", json!("12:30:45")),
        ("2001-12-14", json!("2001-12-14")),
        ("!!binary aGk=", json!("hi")),
        (r#""it\'s \\' \"\'\" ""#, json!(r#"it's \' "'" "#)),
        ("1.2.3", json!("1.2.3")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
    ] {
        assert_eq!(parse_one(&format!("a: {text}")), json!({ "a": wanted }), "{text}");
    }
    assert_eq!(parse_one("y: 1\n1: 2\n1.5: 3\n~x: 4"), json!({"true": 1, "1": 2, "1.5": 3, "~x": 4}));
}

#[test]
fn quoted_scalars_may_continue_on_less_indented_lines() {
    for (text, wanted) in [
        ("a:\n  b: \"first\n second\n\n   third\"\n", json!({"a": {"b": "first second\nthird"}})),
        (
            "a:\n  b: 'it''s\n one'\n  c: |\n    x: \"y\n    z\"\n",
            json!({"a": {"b": "it's one", "c": "x: \"y\nz\"\n"}}),
        ),
        ("a:\n  - - \"b\nc\"\n    - d\n", json!({"a": [["b c", "d"]]})),
        ("a:\n  \"k\": !!str \"x\n\ty\"\n", json!({"a": {"k": "x y"}})),
        ("a:\n  b:\n    \"x\n y\"\n", json!({"a": {"b": "x y"}})),
        ("a:\n  b: {\n\tc: d, # e\n\tf: [\n\tg]}\n", json!({"a": {"b": {"c": "d", "f": ["g"]}}})),
        ("a:\n  # b: \"c\n  d: \"e\n f\"\n", json!({"a": {"d": "e f"}})),
    ] {
        assert_eq!(parse_one(text), wanted, "{text}");
    }
    // Line numbers are those of the unrepaired file.
    let text = "a:\n  b: \"x\n y\"\n  c: 1\n";
    assert_eq!(documents(text).unwrap()[0].line_of("a.c"), Some(4));
    assert_eq!(error("a:\n  b: \"x\n y\"\n  c: @\n"), "yaml: line 4: found character that cannot start any token");
    assert!(error("a:\n\tb: 1\n").contains("line 2: found character that cannot start any token"));
}

#[test]
fn many_less_indented_quoted_scalars_are_repaired_in_one_pass() {
    let text: String = (0..1000).map(|index| format!("k{index}:\n  v: \"first\n second {index}\"\n")).collect();
    assert_eq!(parse_one(&text)["k999"]["v"], "first second 999");
}

#[test]
fn anchors_and_merge_keys_are_resolved() {
    assert_eq!(parse_one("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: *x")["b"], json!({"p": 1, "q": 3}));
    assert_eq!(parse_one("a: [&x {p: 1}, &y {p: 2, q: 2}]\nb: {q: 9, <<: [*x, *y]}")["b"], json!({"p": 1, "q": 9}));
    assert_eq!(parse_one("a: &k key\n*k : 1"), json!({"a": "key", "key": 1}));
    assert_eq!(parse_one("'<<': {a: 1}"), json!({"<<": {"a": 1}}));
    assert_eq!(error("a: *x"), "yaml: line 1: unknown anchor 'x' referenced");
    assert_eq!(error("a: &x [*x]"), "yaml: line 1: anchor 'x' value contains itself");
    assert_eq!(error("a: {<<: 5}"), "yaml: line 1: map merge requires map or sequence of maps as the value");
}

#[test]
fn documents_are_split_at_lines_of_dashes() {
    let lines = |text: &str| -> Vec<(usize, Value)> {
        documents(text).unwrap().into_iter().map(|document| (document.line, document.value)).collect()
    };
    assert_eq!(lines(""), []);
    assert_eq!(lines("# only\n---\n---\n~\n"), []);
    assert_eq!(
        lines("---\n# c\na: 1\n--- # next\n\nb: 2\n...\n---\r\nc: 3\r\n"),
        [(3, json!({"a": 1})), (6, json!({"b": 2})), (9, json!({"c": 3}))]
    );
    assert_eq!(lines("\u{feff}a: 1\nb: 2\n"), [(1, json!({"a": 1, "b": 2}))]);
    assert_eq!(
        lines("{\"a\": 1}\n{\"a\": 2} {\"a\":\n\t3}\n---\na: 4\n"),
        [(1, json!({"a": 1})), (2, json!({"a": 2})), (2, json!({"a": 3})), (5, json!({"a": 4}))]
    );
    assert_eq!(lines("{a: 1}\n---\n[1]"), [(1, json!({"a": 1})), (3, json!([1]))]);
    let (read, failed) = documents_before_error("a: 1\n---\nb: [\n---\nc: 1\n");
    assert_eq!(read.len(), 1);
    assert_eq!(failed.unwrap().line, 3);
    assert_eq!(error("a: 1\n--- {b: 1}\n"), "yaml: line 2: invalid Yaml document separator: {b: 1}");
}

#[test]
fn json_documents_are_read() {
    let text =
        "{\n\t\"a\\/b\": \"\\ud83c\\udf89\\u00e9\",\n\t\"n\": [1.0, 1e3, -0, true, null],\n\t\"t\": \"a\\tb\"\n}";
    assert_eq!(parse_one(text), json!({"a/b": "🎉é", "n": [1, 1000, 0, true, null], "t": "a\tb"}));
    let long = format!("{{\"{}\": 1}}", "k".repeat(5000));
    assert_eq!(parse_one(&long).as_object().unwrap().len(), 1);
}

#[test]
fn yaml_errors_have_the_wording_of_kubectl() {
    for (text, wanted) in [
        ("a: b\nk: c\nm: {name: [x\n", "yaml: line 3: did not find expected ',' or ']'"),
        ("a: b\nk: c\nm:\n\tname: x\n", "yaml: line 4: found character that cannot start any token"),
        ("%YAML 1.1\n---\na: b\n", "yaml: line 1: did not find expected <document start>"),
        ("a: b: c\n", "yaml: line 1: mapping values are not allowed in this context"),
        ("a: 'x\n  b: c\n", "yaml: line 3: found unexpected end of stream"),
        ("k: [\n  'x\n  b: c\n", "yaml: line 4: found unexpected end of stream"),
        ("a: 1\n  b: 2\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("x: 1\na: @b\n", "yaml: line 2: found character that cannot start any token"),
        ("x: 1\n- a\n", "yaml: line 1: did not find expected key"),
        ("x:\n- a\nb\n", "yaml: line 3: could not find expected ':'"),
        ("a: \"\\q\"\n", "yaml: line 1: found unknown escape character"),
        ("a: 1\nb: \u{1}\n", "yaml: line 2: control characters are not allowed"),
        ("a: .nan\n", "yaml: line 1: json: unsupported value: NaN"),
        ("~: 1\n", "yaml: line 1: unsupported map key of type: null"),
        ("? [a]\n: 1\n", "yaml: line 1: invalid map key: a map or a list cannot be one"),
    ] {
        assert_eq!(error(text), wanted, "{text:?}");
    }
}

#[test]
fn hostile_texts_are_refused_quickly() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
        let deep = format!("{}{}", open.repeat(10_000), close.repeat(10_000));
        assert_eq!(error(&deep), "yaml: line 1: exceeded max depth of 110", "{open}");
    }
    let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    assert!(error(&deep).contains("exceeded max depth"));

    assert!(documents(&format!("a: {}{}", "[".repeat(109), "]".repeat(109))).is_ok());

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let last = format!("*a{},", level - 1).repeat(9);
        bomb.push_str(&format!("a{level}: &a{level} [{last}]\n"));
    }
    assert!(error(&bomb).contains("excessive aliasing"));
    let many = format!("a: &a {{b: c}}\nl: [{}]", "*a, ".repeat(20_000));
    assert_eq!(parse_one(&many)["l"].as_array().unwrap().len(), 20_000);

    // A map with one key needs the memory of one with eleven.
    let maps = format!("[{}]", "{a: 1},".repeat(MAX_BYTES / 7 - 1));
    assert!(error(&maps).contains("too many values"));
    assert!(error(&"a: 1\n---\n".repeat(MAX_BYTES / 9)).contains("too many documents"));
    let namespaces = "{apiVersion: v1, kind: Namespace, metadata: {name: n}}\n---\n".repeat(10_000);
    assert_eq!(documents(&namespaces).unwrap().len(), 10_000);
    let key = "k".repeat(60_000);
    assert_eq!(parse_one(&format!("{{\"{key}\": 1}}"))[&key], 1);

    let large = format!("a: {}", "x".repeat(MAX_BYTES));
    assert_eq!(error(&large), format!("yaml: line 1: the document is larger than {MAX_BYTES} bytes"));
}

#[test]
fn bytes_are_decoded_to_text() {
    for (bytes, wanted) in [
        (&b"\xef\xbb\xbfa: 1"[..], Ok("a: 1")),
        (b"\xff\xfea\0:\0 \x001\0", Ok("a: 1")),
        (b"\xfe\xff\0a\0:\0 \x001", Ok("a: 1")),
        (b"a: 1\nb: \xff", Err("yaml: line 2: invalid leading UTF-8 octet")),
        (b"\xc3(", Err("yaml: line 1: invalid trailing UTF-8 octet")),
        (b"\xc3", Err("yaml: line 1: incomplete UTF-8 octet sequence")),
        (b"\xff\xfe\0\0a\0\0\0", Err("yaml: the text is UTF-32; save it as UTF-8")),
        (b"\xff\xfea", Err("yaml: incomplete UTF-16 surrogate pair")),
    ] {
        let text = decode_bytes(bytes).map_err(|error| error.to_string());
        assert_eq!(text, wanted.map(str::to_owned).map_err(str::to_owned), "{bytes:?}");
    }
}

#[test]
fn fields_have_lines() {
    let text = "a: 1\n---\nkind: Pod\nmetadata:\n  labels:\n    app.io/x: y\nspec:\n  containers:\n  - name: a\n    \
                evn: []\n  - {name: b}\n  args:\n  - x\n  - y\n";
    let document = &documents(text).unwrap()[1];
    for (path, wanted) in [
        ("kind", Some(3)),
        ("metadata.labels.app.io/x", Some(6)),
        ("metadata.labels[app.io/x]", Some(6)),
        ("spec.containers", Some(8)),
        ("spec.containers[0]", Some(9)),
        ("spec.containers[0].evn", Some(10)),
        ("spec.containers[1].name", Some(11)),
        ("spec.args[1]", Some(14)),
        ("spec.containers[1].image", Some(11)),
        ("spec.cont", Some(7)),
        ("status", None),
    ] {
        assert_eq!(document.line_of(path), wanted, "{path}");
    }
}

#[test]
fn duplicate_keys_are_reported() {
    let document = &documents("x: 0\n---\na: 1\nspec:\n  c:\n  - {m: 1, m: 2}\na: 3\n").unwrap()[1];
    assert_eq!(document.value["a"], 3);
    let duplicate =
        |path: &str, key: &str, line, field| DuplicateKey { path: path.into(), key: key.into(), line, field };
    assert_eq!(document.duplicates, [duplicate("spec.c[0].m", "m", 6, 4), duplicate("a", "a", 7, 5)]);
}

#[test]
fn texts_are_written_as_in_go_yaml() {
    let words = |count| vec!["word"; count].join(" ");
    for (value, wanted) in [
        (json!("plain words"), "plain words"),
        (json!(""), "\"\""),
        (json!("yes"), "\"yes\""),
        (json!("y"), "\"y\""),
        (json!("null"), "\"null\""),
        (json!("~"), "\"~\""),
        (json!("1"), "\"1\""),
        (json!("1_000"), "\"1_000\""),
        (json!("0x1f"), "\"0x1f\""),
        (json!("1e3"), "\"1e3\""),
        (json!(".5"), "\".5\""),
        (json!("2026-01-01"), "\"2026-01-01\""),
        (json!("2026-01-01T00:00:00Z"), "\"2026-01-01T00:00:00Z\""),
        (json!("2026-01-01x"), "2026-01-01x"),
        (json!("12:30"), "\"12:30\""),
        (json!("a:b"), "a:b"),
        (json!("a: b"), "'a: b'"),
        (json!("a #b"), "'a #b'"),
        (json!("a#b"), "a#b"),
        (json!("- a"), "'- a'"),
        (json!("-a"), "-a"),
        (json!("*a"), "'*a'"),
        (json!("it's"), "it's"),
        (json!("'q'"), "'''q'''"),
        (json!("{a}"), "'{a}'"),
        (json!("a{b}, [c]"), "a{b}, [c]"),
        (json!(" a"), "' a'"),
        (json!("a\tb"), "\"a\\tb\""),
        (json!("é"), "é"),
        (json!("🎉"), "\"\\U0001F389\""),
        (json!("a\u{1}\"\\"), "\"a\\x01\\\"\\\\\""),
        (json!("---"), "'---'"),
        (json!("<<"), "\"<<\""),
        (json!("="), "="),
        (json!("a\nb"), "|-\n  a\n  b"),
        (json!("a\nb\n"), "|\n  a\n  b"),
        (json!("a\n\nb\n\n"), "|+\n  a\n\n  b\n"),
        (json!("\n"), "|2+\n"),
        (json!(" a\nb"), "|2-\n   a\n  b"),
        (json!("a \nb"), "\"a \\nb\""),
        (json!("a\nb "), "\"a\\nb \""),
        (json!(1.5), "1.5"),
        (json!(1e21), "1e+21"),
        (json!(1234567.5), "1.2345675e+06"),
        (json!(0.00001), "1e-05"),
        (json!(-7), "-7"),
        (json!([]), "[]"),
        (json!({}), "{}"),
        (json!(words(18)), &format!("{}\n  word word", words(16))),
        (json!(format!("{}:", words(17))), &format!("'{}\n  word:'", words(16))),
        (json!(format!("{}\t", words(18))), &format!("\"{}\n  word word\\t\"", words(16))),
    ] {
        let text = to_yaml(&json!({ "k": value }));
        assert_eq!(text, format!("k: {wanted}\n"), "{value}");
        assert_eq!(parse_one(&text), json!({ "k": value }), "{value}");
    }
}

#[test]
fn collections_are_written_as_in_go_yaml() {
    let key = "k".repeat(129);
    for (value, wanted) in [
        (json!({"b": [{"x": 1, "y": [1, 2]}, [3, [4]], {}], "a": {"c": null}}), {
            "a:\n  c: null\nb:\n- x: 1\n  \"y\":\n  - 1\n  - 2\n- - 3\n  - - 4\n- {}\n"
        }),
        (json!([1, {"a": 2}]), "- 1\n- a: 2\n"),
        (json!(null), "null\n"),
        (json!({"a10": 1, "a9": 2, "a": 3, "B": 4, "a-b": 5, "1": 6}), {
            "\"1\": 6\nB: 4\na: 3\na-b: 5\na9: 2\na10: 1\n"
        }),
        (json!({key.as_str(): {"a": [1]}}), &format!("? {key}\n: a:\n  - 1\n")),
    ] {
        assert_eq!(to_yaml(&value), wanted);
        assert!(value.is_null() || parse_one(wanted) == value, "{wanted}");
    }
}

#[test]
fn json_is_written_as_in_go() {
    let value = json!({"a": "<b> & \u{2028}\u{1}", "f": [1.5, 1e21, 1e-7, 100.0], "e": {}, "l": []});
    let text = "{\"a\":\"\\u003cb\\u003e \\u0026 \\u2028\\u0001\",\"e\":{},\"f\":[1.5,1e+21,1e-7,100],\"l\":[]}";
    assert_eq!(to_json(&value), text);
    assert_eq!(to_json_pretty(&json!({"a": [1, {}]})), "{\n    \"a\": [\n        1,\n        {}\n    ]\n}");
}

#[test]
fn real_manifests_are_read() {
    let mut folders = vec![shared().join("corpus")];
    let mut failed = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            skip!("no corpus in {}", folder.display());
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let known = ["yaml", "yml", "json"].iter().any(|known| path.extension().is_some_and(|end| end == *known));
            if path.is_dir() {
                folders.push(path);
            } else if known {
                let text = decode_bytes(&std::fs::read(&path).unwrap()).unwrap();
                match documents(&text) {
                    Ok(documents) => {
                        for document in documents {
                            assert_eq!(parse_one(&to_yaml(&document.value)), document.value, "{}", path.display());
                        }
                    }
                    Err(error) => failed.push(format!("{}: {error}", path.display())),
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn shared() -> PathBuf {
    std::env::var("KLOOP_SHARED").map_or_else(|_| PathBuf::from("../shared"), PathBuf::from)
}

/// Output blocks of recorded `-o yaml` and `-o json` commands in the golden conversations.
fn recorded(flags: &[&str], start: &str) -> Vec<(String, String)> {
    let golden = shared().join("golden");
    let Ok(folders) = std::fs::read_dir(&golden) else {
        skip!("no golden recordings in {}", golden.display());
        return Vec::new();
    };
    let mut blocks = Vec::new();
    for folder in folders.flatten() {
        let Ok(text) = std::fs::read_to_string(folder.path().join("conversation.txt")) else { continue };
        for step in text.split("\n$ ").skip(1) {
            let (command, rest) = step.split_once('\n').unwrap_or((step, ""));
            let whole = !command.contains(['|', '>', ';']) && flags.iter().any(|flag| command.contains(flag));
            let lines = rest.lines().take_while(|line| !line.starts_with("! ") && !line.starts_with("? "));
            let output: String = lines.map(|line| format!("{line}\n")).collect();
            if whole && !output.starts_with("< ") && output.starts_with(start) {
                blocks.push((format!("{}: {command}", folder.path().display()), output));
            }
        }
    }
    blocks
}

#[test]
fn recorded_yaml_survives_a_round_trip() {
    for (name, text) in recorded(&["-o yaml", "-oyaml", "-o=yaml"], "apiVersion") {
        // The recordings mask values inside quotes, which only the real values need.
        let text = text.replace("\"<time>\"", "\"2026-01-01T00:00:00Z\"").replace("\"<rv>\"", "\"12\"");
        let documents = documents(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let printed: Vec<String> = documents.iter().map(|document| to_yaml(&document.value)).collect();
        assert_eq!(printed.join("---\n"), text, "{name}");
    }
}

#[test]
fn recorded_json_survives_a_round_trip() {
    for (name, text) in recorded(&["-o json", "-ojson", "-o=json"], "{\n    \"") {
        let text = text.replace(['<', '>'], "_");
        // `kubectl events` prints typed objects, whose fields have the order of their structs.
        if name.contains("kubectl events") {
            continue;
        }
        let documents = documents(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let printed: String = documents.iter().map(|document| to_json_pretty(&document.value) + "\n").collect();
        assert_eq!(printed, text, "{name}");
    }
}
