//! The parts of Go's `text/template` that `-o go-template` needs: fields, variables, `if`, `range`, `with`, pipelines,
//! named templates (`define`, `template`, `block`), the built-in functions, and kubectl's `exists` and `base64decode`.
//!
//! Start reading at [`GoTemplate`]; `parse.rs` parses the nodes, `run.rs` executes them.

mod parse;
mod run;

use serde_json::Value;
use std::collections::BTreeMap;

/// A parsed template.
#[derive(Clone, Debug)]
pub struct GoTemplate {
    nodes: Vec<TemplateNode>,
    /// The templates that `define` and `block` name.
    named: NamedTemplates,
    /// Whether a missing map key is an error: `--allow-missing-template-keys=false`.
    strict: bool,
}

impl GoTemplate {
    /// Parses a template; the error is Go's, such as `template: output:1: unclosed action`.
    pub fn parse(text: &str, strict: bool) -> Result<GoTemplate, String> {
        let (nodes, named) = parse::template(text)?;
        Ok(GoTemplate { nodes, named, strict })
    }

    /// The template's output for a value.
    pub fn eval(&self, value: &Value) -> Result<String, String> {
        run::run(self, value)
    }
}

/// Nodes by the name of their template.
type NamedTemplates = BTreeMap<String, Vec<TemplateNode>>;

#[derive(Clone, Debug)]
enum TemplateNode {
    Text(String),
    Output(Pipeline),
    /// The condition, the nodes when it is true, and the nodes of `else`.
    If(Pipeline, Vec<TemplateNode>, Vec<TemplateNode>),
    With(Pipeline, Vec<TemplateNode>, Vec<TemplateNode>),
    Range(Pipeline, Vec<TemplateNode>, Vec<TemplateNode>),
    Break,
    Continue,
    /// The output of a named template, for the value of a pipeline or for nothing.
    Template(String, Option<Pipeline>),
}

/// Commands, each of which gets the previous result as its last argument.
#[derive(Clone, Debug)]
struct Pipeline {
    /// Variables to set; `range` may have two.
    variables: Vec<String>,
    /// Whether it declares them (`:=`) or assigns to them (`=`).
    declares: bool,
    commands: Vec<Vec<Operand>>,
}

#[derive(Clone, Debug)]
enum Operand {
    Dot,
    Literal(Value),
    Function(String),
    Variable(String),
    Pipe(Box<Pipeline>),
    /// Fields of an operand, and their position in the template.
    Fields(Box<Operand>, Vec<String>, TemplatePosition),
}

/// The text with its line (from 1) and column (from 0), as in Go.
#[derive(Clone, Debug)]
struct TemplatePosition {
    line: usize,
    column: usize,
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "alpha", "labels": {"tier": "front", "a.b/c": "x"}}, "spec": {"containers": [1, 2], "n": 1_234_567}},
            {"metadata": {"name": "beta"}, "spec": {"containers": [1], "ok": true, "n": 80}},
        ], "secret": "aGk="})
    }

    #[test]
    fn templates_are_evaluated() {
        let cases = [
            (
                r#"{{range .items}}{{.metadata.name}}={{.metadata.labels.tier}} {{end}}{{"\n"}}"#,
                "alpha=front beta=<no value> \n",
            ),
            (r#"{{range .items}}{{.metadata.name}} {{len .spec.containers}}{{"\n"}}{{end}}"#, "alpha 2\nbeta 1\n"),
            ("{{.nothing}}", "<no value>"),
            (r#"{{"a='b' \\ \"<é>&\n" | js}}"#, r#"a\u003D\'b\' \\ \"\u003Cé\u003E\u0026\u000A"#),
            ("{{range $i, $x := .items}}{{$i}}:{{$x.metadata.name}};{{end}}", "0:alpha;1:beta;"),
            ("{{range $k, $v := (index .items 0).metadata.labels}}{{$k}}={{$v}} {{end}}", "a.b/c=x tier=front "),
            (r#"{{index .items 0 "metadata" "labels" "a.b/c"}}"#, "x"),
            ("{{range .items}}{{if .spec.ok}}yes{{else}}no{{end}} {{end}}", "no yes "),
            (r#"{{if eq .kind "Pod"}}a{{else if eq .kind "List" "X"}}b{{else}}c{{end}}"#, "b"),
            ("{{with .gone}}x{{else}}none{{end}}", "none"),
            ("{{range .gone}}x{{else}}empty{{end}}", "empty"),
            (r#"{{.kind | printf "%s-%s" "k" | len}} {{printf "%q %v" .kind 1.5}}"#, "6 \"List\" 1.5"),
            (
                r#"{{printf "%05d %.2f %x" 2 1.5 255}} {{print 1 2 "a" 3 nil}} {{println 1 "a"}}"#,
                "00002 1.50 ff 1 2a3 <nil> 1 a\n",
            ),
            (
                r#"{{html "<" .gone}} {{urlquery "a b" "c"}} {{1000000}} {{1e6}}"#,
                "&lt;&lt;no value&gt; a+bc 1000000 1e+06",
            ),
            ("{{- /* note */ -}} a {{- .kind -}} b", "aListb"),
            ("{{$n := 0}}{{range .items}}{{$n = .metadata.name}}{{end}}{{$n}}", "beta"),
            (r#"{{.secret | base64decode}} {{exists . "items" }}"#, "hi true"),
            ("{{range .items}}{{.spec.n}} {{end}}", "1234567 80 "),
            (
                r#"{{range.items}}{{if(eq .metadata.name "beta")}}b{{else if(.spec.n)}}n{{end}}{{end}}{{with.kind}}{{.}}{{end}}"#,
                "nbList",
            ),
            ("{{(index .items 1).metadata}}", "map[name:beta]"),
            ("{{range .items}}{{if .spec.ok}}{{break}}{{end}}{{.metadata.name}}{{end}}", "alpha"),
            (
                r#"{{define "name"}}<{{.metadata.name}}>{{end}}{{range .items}}{{template "name" .}}{{end}}"#,
                "<alpha><beta>",
            ),
            (r#"{{template "late" .kind}}{{define "late"}}{{$}}{{end}}"#, "List"),
            (r#"{{define "bare"}}[{{.}}]{{end}}{{template "bare"}}"#, "[<no value>]"),
            (r#"{{block "kind" .kind}}kind {{.}}{{end}}; {{template "kind" 1}}"#, "kind List; kind 1"),
            (r#"{{define "empty"}} {{end}}{{define "empty"}}full{{end}}{{template "empty"}}"#, "full"),
            (
                r#"{{define "tree"}}{{range $k, $v := .}}{{$k}}({{if eq $k "labels"}}{{template "tree" $v}}{{end}}){{end}}{{end -}}
                {{template "tree" (index .items 0).metadata}}"#,
                "labels(a.b/c()tier())name()",
            ),
            (r#"{{slice .kind 1 3}} {{slice .kind 2}} {{slice .kind}}"#, "is st List"),
            (r#"{{range slice .items 1 2}}{{.metadata.name}}{{end}} {{len (slice .items 1 1 2)}}"#, "beta 0"),
            ("{{and true 0}} {{or 0 .kind}} {{not .kind}} {{gt 3 2}} {{le 2 1}}", "0 List false true false"),
        ];
        for (template, expected) in cases {
            let parsed = GoTemplate::parse(template, false).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.eval(&list()).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn failing_templates_return_errors() {
        let refuse = |template| GoTemplate::parse(template, false).unwrap_err();
        assert_eq!(refuse("{{.items"), "template: output:1: unclosed action");
        assert_eq!(refuse("{{range .items}}"), "template: output:1: unexpected EOF");
        assert_eq!(refuse("a\n{{end}}"), "template: output:2: unexpected {{end}}");
        assert_eq!(refuse("{{foo .x}}"), "template: output:1: function \"foo\" not defined");
        let error = GoTemplate::parse("{{.data.zz}}", true).unwrap().eval(&json!({"data": {}})).unwrap_err();
        assert_eq!(error, "template: output:1:7: executing \"output\" at <.data.zz>: map has no entry for key \"zz\"");
        let error = GoTemplate::parse("{{range 2000000}}{{.}}{{end}}", true).unwrap().eval(&json!({})).unwrap_err();
        assert!(error.ends_with("range counts to 1000000 at most, not to 2000000"), "{error}");
        let named = [
            ("{{break}}", "1: {{break}} outside {{range}}"),
            ("{{range .}}{{end}}{{continue}}", "1: {{continue}} outside {{range}}"),
            ("{{if .}}{{else foo .}}{{end}}", "1: unexpected \"foo\" in else"),
            ("{{if .}}{{else range .}}{{end}}", "1: unexpected <range> in else"),
            ("{{if .}}{{else with .}}{{end}}", "1: unexpected <with> in input"),
            (r#"{{define}}{{end}}"#, "1: unexpected \"}}\" in define clause"),
            (r#"{{define "a" .}}{{end}}"#, "1: unexpected \"a\" . in define clause"),
            (r#"{{define "a"}}"#, "1: unexpected EOF"),
            (r#"{{define "a"}}{{else}}{{end}}"#, "1: unexpected {{else}} in define clause"),
            (r#"{{if 1}}{{define "a"}}{{end}}{{end}}"#, "1: unexpected <define> in command"),
            (r#"{{block "a"}}{{end}}"#, "1: missing value for block clause"),
            (
                "{{define \"a\"}}1{{end}}\n{{define \"a\"}}2{{end}}",
                "2: template: multiple definition of template \"a\"",
            ),
        ];
        for (template, error) in named {
            assert_eq!(refuse(template), format!("template: output:{error}"), "{template}");
        }
        let fail = |template| GoTemplate::parse(template, false).unwrap().eval(&json!({"kind": "List"})).unwrap_err();
        let failures = [
            (r#"{{template "a"}}"#, "executing \"output\": template \"a\" not defined"),
            (
                r#"{{define "a"}}{{.x.y.z}}{{slice 1}}{{end}}{{template "a" .}}"#,
                "executing \"a\": error calling slice: can't slice item of type int64",
            ),
            (
                r#"{{define "a"}}{{if 1}}{{template "a"}}{{end}}{{end}}{{template "a"}}"#,
                "executing \"a\": exceeded maximum template depth (250)",
            ),
            (r#"{{template "output" .}}"#, "executing \"output\": exceeded maximum template depth (250)"),
            (r#"{{slice .gone 1}}"#, "executing \"output\": error calling slice: slice of untyped nil"),
            (r#"{{slice .kind 1 5}}"#, "executing \"output\": error calling slice: index out of range: 5"),
            (r#"{{slice .kind 2 1}}"#, "executing \"output\": error calling slice: invalid slice index: 2 > 1"),
            (r#"{{slice .kind 0 1 2}}"#, "executing \"output\": error calling slice: cannot 3-index slice a string"),
            (
                r#"{{slice .kind "a"}}"#,
                "executing \"output\": error calling slice: cannot index slice/array with type string",
            ),
        ];
        for (template, error) in failures {
            assert_eq!(fail(template), format!("template: output: {error}"), "{template}");
        }
        assert!(GoTemplate::parse(&"{{if (".repeat(5000), false).is_err());
        assert!(GoTemplate::parse(&"{{if 1}}".repeat(5000), false).is_err());
    }
}
