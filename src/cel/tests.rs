//! Values, costs and errors of expressions. The expected ones are those of cel-go and of Kubernetes' tests of cost stability.

use super::*;
use serde_json::{Value as Json, json};

/// Evaluates an expression about a value named `self`.
fn run(text: &str, decl: Option<&Arc<Decl>>, data: &Json) -> Result<(String, u64), String> {
    let found = decl.map_or(Type::Dyn, |decl| Type::declared(decl, "self"));
    let program =
        compile(text, &Declarations::default().declare("self", found), None).map_err(|issues| issues.to_string())?;
    let mut context = Context::default();
    context.bind("self", Value::from_json(data, decl.map(|decl| &**decl)).map_err(|error| error.to_string())?);
    let outcome = context.evaluate(&program, CALL_LIMIT);
    let value = outcome.result.map_err(|error| error.to_string())?;
    Ok((show::format_value(&value), outcome.cost))
}

fn value(text: &str) -> String {
    let data = json!({"a": 1, "f": 1.5, "list": [3, 1, 2], "map": {"x": "y"}, "text": "héé", "none": null});
    run(text, None, &data).map_or_else(|error| error, |(value, _)| value)
}

#[test]
fn expressions_have_their_values() {
    let cases = include_str!("../../tests/cases/cel/values.txt");
    let mut wrong = Vec::new();
    for line in cases.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (text, wanted) = line.split_once(" => ").unwrap_or((line, "true"));
        let found = value(text).replace('\n', "\\n");
        if found != wanted && !(wanted == "ERROR" && found.starts_with("ERROR")) {
            wrong.push(format!("{text}\n  is     {found}\n  not    {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn schema(properties: Json) -> Arc<Decl> {
    Decl::from_schema(&json!({"type": "object", "properties": properties}), false).expect("a declaration")
}

fn texts(text: &str, decl: &Arc<Decl>) -> String {
    let env = Declarations::default().declare("self", Type::declared(decl, "self"));
    compile(text, &env, Some(decl)).map_or_else(|issues| issues.to_string(), |program| program.most_cost.to_string())
}

#[test]
fn evaluation_costs_what_it_costs_kubernetes() {
    let text = json!({"type": "string"});
    let list = |item: Json| json!({"type": "array", "items": item});
    let mut set = list(json!({"type": "integer"}));
    set["x-kubernetes-list-type"] = json!("set");
    let decl = schema(json!({
        "i": {"type": "integer"}, "n": {"type": "number"}, "s": text, "b": {"type": "string", "format": "byte"},
        "d": {"type": "string", "format": "duration"}, "t": {"type": "string", "format": "date-time"},
        "e": {"type": "string", "enum": ["Pending"]}, "l": list(json!({"type": "integer"})), "big": set,
        "m": {"type": "object", "additionalProperties": text}, "x": {"x-kubernetes-int-or-string": true},
        "o": {"type": "object", "properties": {"a-b": text}},
    }));
    let data = json!({"i": 1, "n": 10, "s": "Rook takes 👑", "b": "QUI=", "d": "1h2m3s4ms", "t": "2011-08-18T19:03:37.01+01:00",
        "e": "Pending", "l": [1, 2, 3], "big": (0..1000).collect::<Vec<_>>(), "m": {"k1": "a"}, "x": "5%", "o": {"a-b": "c"}});
    let cases = [
        ("self.i == self.i", "true", 5),
        ("type(self.i) == int", "true", 4),
        ("type(self.n) == double", "true", 4),
        ("double(self.i) < self.n", "true", 6),
        ("double(5) < 10.0", "true", 1),
        ("self.s.startsWith('Rook')", "true", 3),
        ("!self.s.startsWith('knight')", "true", 4),
        ("self.s.matches('^[^0-9]*$')", "true", 8),
        ("size(self.s) == 12", "true", 4),
        ("self.s.charAt(3) == 'k'", "true", 4),
        ("self.s.indexOf('o') == 1", "true", 4),
        ("self.s.replace(' ', 'x') == 'Rookxtakesx👑'", "true", 7),
        ("self.s.split(' ') == ['Rook', 'takes', '👑']", "true", 6),
        ("self.s.substring(4, 10).trim() == 'takes'", "true", 6),
        ("self.b == b'AB'", "true", 3),
        ("self.d == duration('1h2m') + duration('3s4ms')", "true", 4),
        ("self.d.getHours() == 1", "true", 4),
        ("self.t.getDate('01:00') == 18", "true", 4),
        ("self.e in ['Pending', 'Available']", "true", 2),
        ("1 in self.l", "true", 5),
        ("self.l[0] in self.l", "true", 8),
        ("self.l + [4, 5] == [1, 2, 3, 4, 5]", "true", 4),
        ("has(self.l) && has(self.m)", "true", 2),
        ("sets.contains(self.big, [1])", "true", 1003),
        ("!sets.equivalent(self.big, [1, 2, 3])", "true", 6004),
        ("'k1' in self.m", "true", 3),
        ("self.m == {'k1': 'a'}", "true", 3),
        ("type(self.x) == string && self.x == '5%'", "true", 7),
        ("self.o.a__dash__b == 'c'", "true", 4),
    ];
    for (text, wanted, cost) in cases {
        assert_eq!(run(text, Some(&decl), &data), Ok((wanted.to_owned(), cost)), "{text}");
    }
}

#[test]
fn field_named_by_a_reserved_word_is_found_with_and_without_escape() {
    let decl =
        schema(json!({"namespace": {"type": "string"}, "return": {"type": "integer"}, "plain": {"type": "string"}}));
    let data = json!({"namespace": "a", "plain": "b"});
    for text in [
        "self.namespace == 'a' && self.__namespace__ == 'a'",
        "has(self.namespace) && has(self.__namespace__)",
        "!has(self.return) && !has(self.__return__)",
    ] {
        assert_eq!(run(text, Some(&decl), &data).map(|(value, _)| value), Ok("true".to_owned()), "{text}");
    }
    let unknown = texts("self.__plain__ == 'b'", &decl);
    assert!(unknown.starts_with("ERROR: <input>:1:5: undefined field '__plain__'"), "{unknown}");
}

#[test]
fn costs_are_estimated_from_declared_sizes() {
    let decl = schema(json!({
        "list": {"type": "array", "items": {"type": "string"}},
        "short": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 40}},
        "text": {"type": "string", "maxLength": 20},
    }));
    let cases = [
        ("self.text == 'a'", 3),
        ("self.short.all(h, h.endsWith('.dev'))", 53),
        ("self.short.all(x, self.short.all(y, x.matches(y)))", 68563),
    ];
    for (text, cost) in cases {
        assert_eq!(texts(text, &decl), cost.to_string(), "{text}");
    }
    let most = texts("self.list.all(x, self.list.all(y, x.matches(y)))", &decl).parse::<u64>().expect("a cost");
    assert!(most > 1_000_000_000_000, "{most}");
    assert_eq!(texts("self.nope > 1", &decl), "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope > 1\n | ....^");
}

#[test]
fn values_that_contain_others_many_times_are_bounded() {
    let costly = "operation cancelled: actual cost limit exceeded";
    // Each step doubles the parts: 2^40 of them.
    let doubled = format!("[1]{}", ".map(a, [a, a])".repeat(40));
    assert_eq!(value(&format!("dyn({doubled}).indexOf(1) == 0")), costly);
    assert_eq!(value(&format!("'%s'.format([{doubled}]) == ''")), costly);
    let program = compile(&doubled, &Declarations::default(), None).expect("a program");
    let context = Context::default();
    let result = context.evaluate(&program, CALL_LIMIT).result.expect("a value");
    assert_eq!(to_json(&result), Err(EvalError::Costly));
    assert_eq!(
        value("lists.range(5000).map(x, '0123456789').join('').size()"),
        "50000",
        "a text of many parts is allowed"
    );
}

#[test]
fn deeply_nested_variables_are_refused() {
    let program = |number: usize| {
        let Some(before) = number.checked_sub(1) else { return compile("1", &Declarations::default(), None) };
        let name = format!("variables.v{before}");
        compile(&format!("{name} + 1"), &Declarations::default().declare(&name, Type::Int), None)
    };
    let programs: Vec<Program> = (0..2000).map(|number| program(number).expect("a program")).collect();
    let names: Vec<String> = (0..2000).map(|number| format!("v{number}")).collect();
    on_small_stack(move || {
        let mut context = Context::default();
        names.iter().zip(&programs).for_each(|(name, program)| context.bind_lazily(name, program));
        let evaluate = |number: usize| context.evaluate(&programs[number], CALL_LIMIT).result;
        assert!(matches!(evaluate(150), Ok(Value::Int(151))));
        assert!(evaluate(1999).is_err_and(|error| error.to_string().contains("nested too deeply")));
    });
}

/// Runs a check on a thread with a stack as small as that of the threads that serve requests.
fn on_small_stack(check: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(check).expect("a thread");
    thread.join().expect("no overflow");
}

#[test]
fn hostile_expressions_are_refused_or_stopped() {
    let nested = |open: &str, inner: &str, close: &str, count: usize| {
        format!("{}{inner}{}", open.repeat(count), close.repeat(count))
    };
    let refused = [
        ("a".repeat(100_001), "expression code point size exceeds limit: size: 100001, limit 100000"),
        (nested("(", "1", ")", 5000), "expression recursion limit exceeded: 250"),
        (nested("[", "1", "]", 5000), "expression recursion limit exceeded: 250"),
        (nested("size([", "1", "])", 5000), "expression recursion limit exceeded: 250"),
        (format!("1{}", " + 1".repeat(5000)), "expression recursion limit exceeded: 250"),
        (format!("self{}", ".a".repeat(5000)), "expression recursion limit exceeded: 250"),
        (format!("self{}", "[0]".repeat(5000)), "expression recursion limit exceeded: 250"),
        (nested("[1].map(x, ", "x", ")", 3000), "expression recursion limit exceeded: 250"),
        (format!("self{}", ".optMap(x, x)".repeat(100)), "too large after macros"),
        ("!".repeat(50_000), "extraneous input"),
        ("{".repeat(50_000), "expression recursion limit exceeded: 250"),
        (") ".repeat(10_000), "error recovery token lookahead limit exceeded: 512"),
    ];
    on_small_stack(move || {
        for (text, wanted) in refused {
            let found = value(&text);
            assert!(found.contains(wanted), "{}: {found}", &text[..text.len().min(40)]);
        }
    });
    let deep = nested("[1].map(x, ", "x", ")", 100);
    let long = vec!["self.a == 1"; 6000].join(" || ");
    on_small_stack(move || {
        assert_eq!(value(&format!("size({deep}) == 1")), "true");
        assert_eq!(value(&long), "true");
        assert_eq!(value(&nested("(", "1", ")", 200)), "1");
    });
    let costly = [
        "lists.range(1000000).all(x, lists.range(1000000).all(y, x + y >= 0))",
        "lists.range(100000).map(x, lists.range(100000)).size() > 0",
        "lists.range(1000).map(x, '0123456789').join('').replace('', '0123456789'.replace('', '0123456789')).replace('', '0123456789'.replace('', '0123456789')).size() > 0",
        "lists.range(2000).map(x, string(x)).filter(p, 'a'.matches('\\\\pL{80}' + p)).size() == 0",
    ];
    for text in costly {
        assert_eq!(value(text), "operation cancelled: actual cost limit exceeded", "{text}");
    }
}
