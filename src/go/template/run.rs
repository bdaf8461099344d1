//! Executes a template's nodes.

use super::{GoTemplate, Operand, Pipeline, TemplateNode, TemplatePosition};
use crate::go::fmt;
use crate::go::json::go_float;
use crate::go::printf::sprintf;
use base64::Engine;
use serde_json::Value;
use std::cmp::Ordering;

/// Maximum nesting of blocks and templates, which the stack has room for. Go allows 100,000 templates.
const MAX_DEPTH: usize = 250;
/// Maximum number that `range` counts to.
const MAX_COUNT: i64 = 1_000_000;

/// The name of the whole template.
const WHOLE: &str = "output";

/// Returns the output for a value.
pub fn run(template: &GoTemplate, value: &Value) -> Result<String, String> {
    let mut runner = Runner {
        template,
        executing: WHOLE,
        depth: 0,
        variables: vec![("$".into(), value.clone())],
        out: String::new(),
    };
    runner.nodes(&template.nodes, value)?;
    Ok(runner.out)
}

/// Reason for leaving an iteration.
#[derive(PartialEq)]
enum LoopFlow {
    On,
    Break,
    Continue,
}

struct Runner<'t> {
    template: &'t GoTemplate,
    /// The name of the template that is being executed.
    executing: &'t str,
    depth: usize,
    /// Variables, the innermost last.
    variables: Vec<(String, Value)>,
    out: String,
}

impl<'t> Runner<'t> {
    fn nodes(&mut self, nodes: &'t [TemplateNode], dot: &Value) -> Result<LoopFlow, String> {
        if self.depth == MAX_DEPTH {
            return Err(self.failed(&format!("exceeded maximum template depth ({MAX_DEPTH})")));
        }
        self.depth += 1;
        let flow = self.each_node(nodes, dot)?;
        self.depth -= 1;
        Ok(flow)
    }

    fn each_node(&mut self, nodes: &'t [TemplateNode], dot: &Value) -> Result<LoopFlow, String> {
        for node in nodes {
            let flow = match node {
                TemplateNode::Text(text) => {
                    self.out.push_str(text);
                    LoopFlow::On
                }
                TemplateNode::Output(pipe) => {
                    let value = self.pipe(pipe, dot)?;
                    if pipe.variables.is_empty() {
                        self.out.push_str(&text(&value));
                    }
                    LoopFlow::On
                }
                TemplateNode::Break => LoopFlow::Break,
                TemplateNode::Continue => LoopFlow::Continue,
                TemplateNode::Template(name, pipe) => {
                    self.named(name, pipe.as_ref(), dot)?;
                    LoopFlow::On
                }
                TemplateNode::If(..) | TemplateNode::With(..) | TemplateNode::Range(..) => {
                    // The scope of variables declared in a block ends with it.
                    let known = self.variables.len();
                    let flow = self.block(node, dot)?;
                    self.variables.truncate(known);
                    flow
                }
            };
            if flow != LoopFlow::On {
                return Ok(flow);
            }
        }
        Ok(LoopFlow::On)
    }

    /// Executes a named template, which sees none of the variables but `$`, its own value.
    fn named(&mut self, name: &'t str, pipe: Option<&'t Pipeline>, dot: &Value) -> Result<(), String> {
        let template = self.template;
        let nodes = match name {
            WHOLE => &template.nodes,
            name => template.named.get(name).ok_or_else(|| self.failed(&format!("template {name:?} not defined")))?,
        };
        let dot = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => Value::Null,
        };
        let variables = std::mem::replace(&mut self.variables, vec![("$".into(), dot.clone())]);
        let executing = std::mem::replace(&mut self.executing, name);
        self.nodes(nodes, &dot)?;
        (self.variables, self.executing) = (variables, executing);
        Ok(())
    }

    fn block(&mut self, node: &'t TemplateNode, dot: &Value) -> Result<LoopFlow, String> {
        match node {
            TemplateNode::If(condition, body, otherwise) => {
                let is_true = truth(&self.pipe(condition, dot)?);
                self.nodes(if is_true { body } else { otherwise }, dot)
            }
            TemplateNode::With(pipe, body, otherwise) => {
                let value = self.pipe(pipe, dot)?;
                if truth(&value) { self.nodes(body, &value) } else { self.nodes(otherwise, dot) }
            }
            TemplateNode::Range(pipe, body, otherwise) => self.range(pipe, body, otherwise, dot),
            _ => Ok(LoopFlow::On),
        }
    }

    fn range(
        &mut self,
        pipe: &'t Pipeline,
        body: &'t [TemplateNode],
        otherwise: &'t [TemplateNode],
        dot: &Value,
    ) -> Result<LoopFlow, String> {
        let items: Vec<(Value, Value)> = match self.commands(pipe, dot)? {
            Value::Array(items) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Value::Object(map) => map.into_iter().map(|(key, value)| (key.into(), value)).collect(),
            Value::Null => Vec::new(),
            Value::Number(count) if count.as_i64().is_some_and(|count| count > MAX_COUNT) => {
                return Err(self.failed(&format!("range counts to {MAX_COUNT} at most, not to {count}")));
            }
            Value::Number(count) if count.is_i64() => {
                (0..count.as_i64().unwrap_or(0)).map(|at| (at.into(), at.into())).collect()
            }
            other => return Err(self.failed(&format!("range can't iterate over {}", text(&other)))),
        };
        if items.is_empty() {
            return self.nodes(otherwise, dot);
        }
        for (key, value) in items {
            let known = self.variables.len();
            match pipe.variables.as_slice() {
                [one] => self.variables.push((one.clone(), value.clone())),
                [first, second] => {
                    self.variables.extend([(first.clone(), key), (second.clone(), value.clone())]);
                }
                _ => {}
            }
            let flow = self.nodes(body, &value)?;
            self.variables.truncate(known);
            if flow == LoopFlow::Break {
                break;
            }
        }
        Ok(LoopFlow::On)
    }

    /// Evaluates a pipeline and assigns its value to the variable, if there is one.
    fn pipe(&mut self, pipe: &Pipeline, dot: &Value) -> Result<Value, String> {
        let value = self.commands(pipe, dot)?;
        if let Some(name) = pipe.variables.first() {
            let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
            match known {
                Some((_, slot)) if !pipe.declares => *slot = value.clone(),
                None if !pipe.declares => return Err(self.failed(&format!("undefined variable: {name}"))),
                _ => self.variables.push((name.clone(), value.clone())),
            }
        }
        Ok(value)
    }

    fn commands(&mut self, pipe: &Pipeline, dot: &Value) -> Result<Value, String> {
        let mut last = None;
        for command in &pipe.commands {
            last = Some(self.command(command, dot, last)?);
        }
        Ok(last.unwrap_or(Value::Null))
    }

    fn command(&mut self, operands: &[Operand], dot: &Value, piped: Option<Value>) -> Result<Value, String> {
        let Some((first, rest)) = operands.split_first() else { return Ok(Value::Null) };
        if let Operand::Function(name) = first {
            let mut arguments = Vec::new();
            for operand in rest {
                arguments.push(self.operand(operand, dot)?);
            }
            arguments.extend(piped);
            if let ("call", Some(Operand::Fields(base, names, _))) = (name.as_str(), rest.first())
                && matches!(base.as_ref(), Operand::Dot)
                && let Some(value) = arguments.first().filter(|value| !value.is_null())
            {
                let why = not_callable(&format!(".{}", names.join(".")), value);
                return Err(self.failed(&format!("error calling call: {why}")));
            }
            return call(name, &arguments).map_err(|error| self.failed(&format!("error calling {name}: {error}")));
        }
        if !rest.is_empty() || piped.is_some() {
            return Err(self.failed("can't give argument to non-function"));
        }
        self.operand(first, dot)
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, String> {
        match operand {
            Operand::Dot => Ok(dot.clone()),
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Function(name) => {
                call(name, &[]).map_err(|error| self.failed(&format!("error calling {name}: {error}")))
            }
            Operand::Variable(name) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                known
                    .map(|(_, value)| value.clone())
                    .ok_or_else(|| self.failed(&format!("undefined variable {name:?}")))
            }
            Operand::Pipe(pipe) => self.pipe(pipe, dot),
            Operand::Fields(base, names, place) => {
                let base = match base.as_ref() {
                    Operand::Dot => return self.fields(dot, names, place),
                    other => self.operand(other, dot)?,
                };
                self.fields(&base, names, place)
            }
        }
    }

    fn fields(&self, base: &Value, names: &[String], place: &TemplatePosition) -> Result<Value, String> {
        let mut value = base;
        for name in names {
            let TemplatePosition { line, column, text } = place;
            let fail = |why: String| {
                format!("template: output:{line}:{column}: executing {:?} at <{text}>: {why}", self.executing)
            };
            value = match value {
                Value::Object(map) => match map.get(name) {
                    Some(value) => value,
                    None if self.template.strict => return Err(fail(format!("map has no entry for key {name:?}"))),
                    None => return Ok(Value::Null),
                },
                Value::Null if self.template.strict => {
                    return Err(fail(format!("nil data; no entry for key {name:?}")));
                }
                Value::Null => return Ok(Value::Null),
                _ => return Err(fail(format!("can't evaluate field {name} in type interface {{}}"))),
            };
        }
        Ok(value.clone())
    }

    fn failed(&self, why: &str) -> String {
        format!("template: output: executing {:?}: {why}", self.executing)
    }
}

fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Formats a value for the output.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".into(),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or(0.0), -4, 6),
        other => fmt::plain(other),
    }
}

/// Formats values like `fmt.Sprint`: with a blank between two of which neither is a string.
fn sprint(values: &[Value], nil: &str) -> String {
    let mut out = String::new();
    for (place, value) in values.iter().enumerate() {
        if place > 0 && !value.is_string() && !values[place - 1].is_string() {
            out.push(' ');
        }
        out.push_str(&if value.is_null() { nil.to_owned() } else { text(value) });
    }
    out
}

fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let first = arguments.first().ok_or("wrong number of args: want at least 1 got 0");
    let all_text = || first.map(|_| sprint(arguments, "<no value>"));
    Ok(match name {
        "and" => {
            arguments.iter().find(|value| !truth(value)).or(arguments.last()).cloned().ok_or("wrong number of args")?
        }
        "or" => {
            arguments.iter().find(|value| truth(value)).or(arguments.last()).cloned().ok_or("wrong number of args")?
        }
        // No value of an object is a function.
        "call" if first?.is_null() => return Err("call of nil".into()),
        "call" => return Err(not_callable(&text(first?), first?)),
        "not" => (!truth(first?)).into(),
        "len" => length(first?)?.into(),
        "slice" => slice(first?, &arguments[1..])?,
        "index" => index(first?, &arguments[1..])?,
        "exists" => index(first?, &arguments[1..]).is_ok_and(|found| !found.is_null()).into(),
        "print" => sprint(arguments, "<nil>").into(),
        "println" => {
            let texts = arguments.iter().map(|value| sprint(std::slice::from_ref(value), "<nil>"));
            (texts.collect::<Vec<_>>().join(" ") + "\n").into()
        }
        "printf" => sprintf(first?.as_str().unwrap_or_default(), &arguments[1..]).into(),
        "base64decode" => decode(first?)?.into(),
        "html" => {
            all_text()?.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;").into()
        }
        "js" => js_escape(&all_text()?).into(),
        "urlquery" => url_query(&all_text()?).into(),
        "ne" => (!equal(first?, arguments.get(1).ok_or("missing argument for comparison")?)?).into(),
        "eq" => {
            let others =
                arguments.get(1..).filter(|others| !others.is_empty()).ok_or("missing argument for comparison")?;
            let equals: Result<Vec<bool>, String> = others.iter().map(|other| equal(first?, other)).collect();
            equals?.contains(&true).into()
        }
        _ => {
            let order = compare(first?, arguments.get(1).ok_or("missing argument for comparison")?)?;
            match name {
                "lt" => order.is_lt(),
                "le" => order.is_le(),
                "gt" => order.is_gt(),
                _ => order.is_ge(),
            }
            .into()
        }
    })
}

/// Go's error for a call of a value that is not a function.
fn not_callable(text: &str, value: &Value) -> String {
    format!("non-function {text} of type {}", fmt::type_name(value))
}

fn length(value: &Value) -> Result<usize, String> {
    match value {
        Value::String(text) => Ok(text.len()),
        Value::Array(items) => Ok(items.len()),
        Value::Object(map) => Ok(map.len()),
        Value::Null => Err("len of nil pointer".into()),
        other => Err(format!("len of type {}", fmt::type_name(other))),
    }
}

fn index(value: &Value, keys: &[Value]) -> Result<Value, String> {
    keys.iter().try_fold(value.clone(), |value, key| match (&value, key) {
        (Value::Object(map), Value::String(key)) => Ok(map.get(key).cloned().unwrap_or(Value::Null)),
        (Value::Array(items), Value::Number(at)) => {
            let at = at.as_f64().filter(|at| *at >= 0.0).map(|at| at as usize);
            at.and_then(|at| items.get(at)).cloned().ok_or_else(|| format!("index out of range: {key}"))
        }
        (Value::Null, _) => Err("index of untyped nil".into()),
        _ => Err("cannot index value with key of that type".into()),
    })
}

fn slice(value: &Value, indexes: &[Value]) -> Result<Value, String> {
    let length = match value {
        Value::Null => return Err("slice of untyped nil".into()),
        _ if indexes.len() > 3 => return Err(format!("too many slice indexes: {}", indexes.len())),
        Value::String(_) if indexes.len() == 3 => return Err("cannot 3-index slice a string".into()),
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        other => return Err(format!("can't slice item of type {}", fmt::type_name(other))),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = slice_index(index, length)?;
    }
    let [first, end, most] = bounds;
    if let Some((low, high)) = [(first, end), (end, most)].into_iter().find(|(low, high)| low > high) {
        return Err(format!("invalid slice index: {low} > {high}"));
    }
    Ok(match value {
        Value::Array(items) => items[first..end].into(),
        // Go cuts a text between bytes, also within a letter.
        other => String::from_utf8_lossy(&other.as_str().unwrap_or_default().as_bytes()[first..end]).into(),
    })
}

fn slice_index(index: &Value, length: usize) -> Result<usize, String> {
    let number = match index {
        Value::Null => return Err("cannot index slice/array with nil".into()),
        Value::Number(number) => number.as_f64().unwrap_or(-1.0),
        other => return Err(format!("cannot index slice/array with type {}", fmt::type_name(other))),
    };
    if number < 0.0 || number > length as f64 {
        return Err(format!("index out of range: {index}"));
    }
    Ok(number as usize)
}

fn equal(left: &Value, right: &Value) -> Result<bool, String> {
    match (left, right) {
        (Value::Null, other) | (other, Value::Null) => Ok(other.is_null()),
        (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
        _ => Ok(compare(left, right)?.is_eq()),
    }
}

/// Compares values. Unlike in Go, numbers of different types compare with each other.
fn compare(left: &Value, right: &Value) -> Result<Ordering, String> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().partial_cmp(&right.as_f64()).ok_or_else(|| "incompatible types for comparison".into())
        }
        _ => Err("incompatible types for comparison".into()),
    }
}

fn decode(value: &Value) -> Result<String, String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text(value)).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn url_query(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
        out
    })
}

/// Escapes a text for a string literal of JavaScript, as Go's `template.JSEscape`.
fn js_escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        match letter {
            '\\' | '\'' | '"' => out.extend(['\\', letter]),
            '<' | '>' | '&' | '=' | '\0'..='\x1f' => out.push_str(&format!("\\u{:04X}", u32::from(letter))),
            _ if letter.is_ascii() || is_printed(letter) => out.push(letter),
            _ => out.push_str(&format!("\\u{:04X}", u32::from(letter))),
        }
        out
    })
}

/// Whether a letter is visible by itself.
fn is_printed(letter: char) -> bool {
    letter.is_alphanumeric() || !letter.is_whitespace() && letter.escape_debug().count() == 1
}
