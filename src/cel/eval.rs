//! Evaluates expressions, and counts the cost as cel-go does (`cel-go/interpreter`).
//!
//! Never: changes a bound value, or continues when the cost is above the limit. Start reading at [`Context`].

use super::Program;
use super::call_cost::{LIST, MAP, MESSAGE, call_cost};
use super::foreign::authorizer::Authorize;
use super::library::regex::{find_all, find_first, is_match};
use super::limits::WorkLimits;
use super::plan::{ConstantPattern, FoldNode, Node};
use super::show::format_value;
use super::value::{EvalError, Evaluated, List, Map, MapKey, Value, fail};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The name of the variable whose fields are expressions.
pub const VARIABLES: &str = "variables";
/// The start of the name of such a field.
const VARIABLE_PREFIX: &str = "variables.";
/// Maximum depth of an expression with the variables below it: its evaluation has to fit the stacks of the threads that serve
/// requests, which are 2 MiB.
const MAX_DEPTH: usize = 500;

/// The values of an expression's variables, and the cost of its evaluation so far.
#[derive(Default)]
pub struct Context<'v> {
    bindings: Vec<(&'v str, Value<'v>)>,
    /// Variables that are expressions; each is evaluated when it is first used.
    variables: Vec<LazyVariable<'v>>,
    /// The place of each variable in `variables`, by name.
    places: HashMap<&'v str, usize>,
    /// The results of the variables that were evaluated.
    results: RefCell<Vec<Option<Evaluated<'v>>>>,
    limits: WorkLimits<'v>,
    cost: Cell<u64>,
    limit: Cell<u64>,
}

/// A variable that is an expression.
struct LazyVariable<'v> {
    program: &'v Program,
    /// The depth of its expression with that of the variables below it.
    depth: usize,
}

/// The result of an evaluation and its cost.
pub struct Outcome<'v> {
    /// The value or the error.
    pub result: Evaluated<'v>,
    /// The cost of the evaluation.
    pub cost: u64,
}

impl<'v> Context<'v> {
    /// Gives a variable a value.
    pub fn bind(&mut self, name: &'v str, value: Value<'v>) {
        self.bindings.push((name, value));
    }

    /// Replaces the value of a variable.
    pub fn rebind(&mut self, name: &'v str, value: Value<'v>) {
        self.bindings.retain(|(bound, _)| *bound != name);
        self.bind(name, value);
    }

    /// Makes an expression a field of `variables`.
    pub fn bind_lazily(&mut self, name: &'v str, program: &'v Program) {
        let depth = self.depth_with_variables(program);
        self.places.entry(name).or_insert(self.variables.len());
        self.variables.push(LazyVariable { program, depth });
        self.results.borrow_mut().push(None);
    }

    /// Returns the depth of a program with that of the variables that it uses. It bounds the recursion of an evaluation and
    /// the nesting of a value, to which each variable can add a level.
    fn depth_with_variables(&self, program: &Program) -> usize {
        let names = program.uses.iter().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX));
        let places = names.filter_map(|name| self.places.get(name));
        program.depth + places.map(|place| self.variables[*place].depth).max().unwrap_or(0)
    }

    /// Sets the authorizer that answers questions about rights.
    pub fn set_authorizer(&mut self, authorizer: &'v dyn Authorize) {
        self.limits.set_authorizer(authorizer);
    }

    /// Evaluates a program with a limit on its cost.
    pub fn evaluate(&self, program: &Program, limit: u64) -> Outcome<'v> {
        self.cost.set(0);
        self.limit.set(limit);
        self.limits.reset();
        if self.depth_with_variables(program) > MAX_DEPTH {
            let result = fail(format!("the expression and its variables are nested too deeply: limit {MAX_DEPTH}"));
            return Outcome { result, cost: 0 };
        }
        let result = self.eval(&program.node, &mut Vec::new());
        Outcome { result, cost: self.cost.get() }
    }

    fn charge(&self, cost: u64) -> Result<(), EvalError> {
        self.cost.set(self.cost.get().saturating_add(cost));
        if self.cost.get() > self.limit.get() { Err(EvalError::Costly) } else { Ok(()) }
    }

    fn eval(&self, node: &Node, locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Global(name) => {
                self.charge(1)?;
                self.read_global(name)
            }
            Node::Local(place) => {
                self.charge(1)?;
                locals.get(*place).cloned().unwrap_or(Ok(Value::Null))
            }
            Node::Select(operand, field) => self.select(operand, field, locals),
            Node::Has(operand, field) => {
                let value = self.eval(operand, locals)?;
                Ok(Value::Bool(self.has(&value, field)?))
            }
            Node::OptionalSelect(operand, field) => {
                let value = self.eval(operand, locals)?;
                self.charge(1)?;
                optional_field(&value, field)
            }
            Node::And(both) => self.logic(both, false, locals),
            Node::Or(both) => self.logic(both, true, locals),
            Node::Conditional(parts) => match self.eval(&parts.0, locals)? {
                Value::Bool(true) => self.eval(&parts.1, locals),
                Value::Bool(false) => self.eval(&parts.2, locals),
                _ => Err(EvalError::no_overload()),
            },
            Node::NotStrictlyFalse(operand) => {
                let value = self.eval(operand, locals);
                self.charge(1)?;
                match value {
                    Err(EvalError::Costly) => Err(EvalError::Costly),
                    Ok(Value::Bool(false)) => Ok(Value::Bool(false)),
                    _ => Ok(Value::Bool(true)),
                }
            }
            Node::OrElse(both, unwraps) => self.or_else(both, *unwraps, locals),
            Node::Call(function, nodes, pattern) => {
                let args = nodes.iter().map(|arg| self.eval(arg, locals)).collect::<Result<Vec<_>, _>>()?;
                let result = match pattern {
                    Some(pattern) => self.match_constant(function.name, pattern, &args)?,
                    None => (function.run)(&self.limits, &args)?,
                };
                // Looking for a value in a list of constants is free.
                if !(function.name == "@in" && matches!(nodes.get(1), Some(Node::Constant(Value::List(_))))) {
                    self.charge(call_cost(function.name, &args, &result))?;
                }
                Ok(result)
            }
            Node::List(items) => self.list(items, locals),
            Node::Map(entries) => self.map(entries, locals),
            Node::Message(name, fields) => self.message(name, fields, locals),
            Node::Fold(parts) => self.fold(parts, locals),
            Node::Bind(both) => {
                let value = self.eval(&both.0, locals);
                locals.push(value);
                let result = self.eval(&both.1, locals);
                locals.pop();
                result
            }
            Node::Append(place, item) => self.append(*place, item, locals),
            Node::Insert(place, args) => self.insert(*place, args, locals),
        }
    }

    fn read_global(&self, name: &str) -> Evaluated<'v> {
        if let Some((_, value)) = self.bindings.iter().find(|(bound, _)| *bound == name) {
            return Ok(value.clone());
        }
        if name == VARIABLES {
            return Ok(Value::Map(Map::Variables));
        }
        if let Some(value) = name.strip_prefix(VARIABLE_PREFIX).and_then(|name| self.evaluate_variable(name)) {
            return value;
        }
        fail(format!("no such attribute(s): {name}"))
    }

    /// Returns the value of a variable that is an expression, which is evaluated once; `None` when there is no such variable.
    fn evaluate_variable(&self, name: &str) -> Option<Evaluated<'v>> {
        let place = *self.places.get(name)?;
        let earlier = self.results.borrow().get(place).cloned().flatten();
        Some(earlier.unwrap_or_else(|| {
            let result = self.eval(&self.variables[place].program.node, &mut Vec::new());
            if let Some(slot) = self.results.borrow_mut().get_mut(place) {
                *slot = Some(result.clone());
            }
            result
        }))
    }

    fn select(&self, operand: &Node, field: &str, locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let value = self.eval(operand, locals)?;
        let is_chain =
            matches!(operand, Node::Global(_) | Node::Local(_) | Node::Select(..) | Node::OptionalSelect(..));
        let is_index = matches!(operand, Node::Call(function, ..) if function.name == super::ast::operator::INDEX);
        self.charge(if is_chain || is_index { 1 } else { 2 })?;
        match &value {
            Value::Map(Map::Variables) => {
                self.evaluate_variable(field).unwrap_or_else(|| fail(format!("no such key: {field}")))
            }
            Value::Map(map) => match map.field(field)? {
                Some(value) => Ok(value),
                None => fail(format!("no such key: {field}")),
            },
            Value::Optional(_) => optional_field(&value, field),
            _ => fail(format!("no such key: {field}")),
        }
    }

    fn has(&self, value: &Value<'v>, field: &str) -> Result<bool, EvalError> {
        match value {
            Value::Map(Map::Variables) => Ok(self.places.contains_key(field)),
            Value::Map(map) => Ok(map.field(field)?.is_some()),
            Value::Optional(Some(inner)) => self.has(inner, field),
            // Null and scalars have no fields (cel-go: refQualify).
            _ => Ok(false),
        }
    }

    /// `&&` and `||`: a deciding operand decides, also when the other is an error.
    fn logic(&self, both: &(Node, Node), decides: bool, locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let first = self.eval(&both.0, locals);
        if matches!(first, Err(EvalError::Costly)) {
            return first;
        }
        if matches!(first, Ok(Value::Bool(value)) if value == decides) {
            return first;
        }
        let second = self.eval(&both.1, locals);
        if matches!(second, Err(EvalError::Costly)) || matches!(second, Ok(Value::Bool(value)) if value == decides) {
            return second;
        }
        match (first, second) {
            (Ok(Value::Bool(_)), Ok(Value::Bool(value))) => Ok(Value::Bool(value)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(EvalError::no_overload()),
        }
    }

    fn or_else(&self, both: &(Node, Node), unwraps: bool, locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let first = self.eval(&both.0, locals)?;
        self.charge(1)?;
        match first {
            Value::Optional(Some(inner)) if unwraps => Ok(Value::clone(&inner)),
            Value::Optional(Some(_)) => Ok(first),
            Value::Optional(None) => self.eval(&both.1, locals),
            _ => Err(EvalError::no_overload()),
        }
    }

    /// `matches`, `find` and `findAll` with a pattern that is a constant.
    fn match_constant(&self, name: &str, pattern: &ConstantPattern, args: &[Value<'v>]) -> Evaluated<'v> {
        let [Some(text), Some(source)] = [0, 1].map(|place| args.get(place).and_then(Value::as_text)) else {
            return Err(EvalError::no_overload());
        };
        let regex = match pattern.get() {
            Some(regex) => regex.clone(),
            None => {
                let compiled = self.limits.compile_pattern(source)?.map_err(EvalError::Failed)?;
                pattern.get_or_init(|| compiled).clone()
            }
        };
        match name {
            "matches" => is_match(&self.limits, &regex, text),
            "find" => find_first(&self.limits, &regex, text),
            _ => find_all(&self.limits, &regex, text, args.get(2)),
        }
    }

    fn list(&self, items: &[(Node, bool)], locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let mut elements = Vec::with_capacity(items.len());
        for (item, optional) in items {
            elements.extend(present_element(self.eval(item, locals)?, *optional));
        }
        self.charge(LIST)?;
        Ok(Value::list(elements))
    }

    fn map(&self, entries: &[(Node, Node, bool)], locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key, locals)?;
            let value = self.eval(value, locals)?;
            let Some(map_key) = MapKey::from_value(&key) else {
                return fail(format!("unsupported key type: {}", key.type_name()));
            };
            if let Some(value) = present_element(value, *optional)
                && map.insert(map_key, value).is_some()
            {
                return fail(format!("Failed with repeated key: {}", format_value(&key)));
            }
        }
        self.charge(MAP)?;
        Ok(Value::Map(Map::Owned(Arc::new(map))))
    }

    fn message(
        &self,
        name: &Arc<str>,
        fields: &[(Arc<str>, Node, bool)],
        locals: &mut Vec<Evaluated<'v>>,
    ) -> Evaluated<'v> {
        let mut values = BTreeMap::new();
        for (field, value, optional) in fields {
            if let Some(value) = present_element(self.eval(value, locals)?, *optional) {
                values.insert(MapKey::String(field.clone()), value);
            }
        }
        self.charge(MESSAGE)?;
        Ok(Value::Map(Map::Message(name.clone(), Arc::new(values))))
    }

    fn fold(&self, parts: &FoldNode, locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let range = self.eval(&parts.range, locals)?;
        let depth = locals.len();
        let start = self.eval(&parts.start, locals);
        locals.push(start);
        let steps = self.run_steps(parts, &range, depth, locals);
        locals.truncate(depth + 1);
        let result = steps.and_then(|()| self.eval(&parts.result, locals));
        locals.truncate(depth);
        result
    }

    /// Runs the steps of a loop, whose accumulator is at `place`.
    fn run_steps(
        &self,
        parts: &FoldNode,
        range: &Value<'v>,
        place: usize,
        locals: &mut Vec<Evaluated<'v>>,
    ) -> Result<(), EvalError> {
        let items = match range {
            Value::List(list) => Items::List(list),
            Value::Map(map) => Items::Map(map, map.keys()),
            _ => return Err(EvalError::no_overload()),
        };
        for index in 0..items.count() {
            locals.truncate(place + 1);
            let (first, second) = items.get(index, parts.has_second)?;
            locals.push(first);
            locals.extend(second);
            if !matches!(self.eval(&parts.condition, locals)?, Value::Bool(true)) {
                break;
            }
            self.limits.count_steps(1)?;
            let next = self.eval(&parts.step, locals);
            if matches!(next, Err(EvalError::Costly)) {
                return Err(EvalError::Costly);
            }
            let is_lost = next.is_err() && matches!(parts.condition, Node::Constant(_));
            locals[place] = next;
            if is_lost {
                break;
            }
        }
        Ok(())
    }

    fn append(&self, place: usize, item: &Node, locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let item = self.eval(item, locals)?;
        self.charge(1 + LIST + 1)?;
        match std::mem::replace(&mut locals[place], Ok(Value::Null))? {
            Value::List(List::Owned(mut items)) => {
                Arc::make_mut(&mut items).push(item);
                Ok(Value::List(List::Owned(items)))
            }
            _ => Err(EvalError::no_overload()),
        }
    }

    fn insert(&self, place: usize, args: &[Node], locals: &mut Vec<Evaluated<'v>>) -> Evaluated<'v> {
        let args = args.iter().map(|arg| self.eval(arg, locals)).collect::<Result<Vec<_>, _>>()?;
        self.charge(2)?;
        match std::mem::replace(&mut locals[place], Ok(Value::Null))? {
            Value::Map(Map::Owned(mut entries)) => {
                super::library::insert(Arc::make_mut(&mut entries), &args)?;
                Ok(Value::Map(Map::Owned(entries)))
            }
            _ => Err(EvalError::no_overload()),
        }
    }
}

/// The items of a loop.
enum Items<'a, 'v> {
    List(&'a List<'v>),
    Map(&'a Map<'v>, Vec<Value<'v>>),
}

impl<'v> Items<'_, 'v> {
    fn count(&self) -> usize {
        match self {
            Items::List(list) => list.count(),
            Items::Map(_, keys) => keys.len(),
        }
    }

    /// The values of the one or two variables of a loop.
    fn get(&self, index: usize, both: bool) -> Result<(Evaluated<'v>, Option<Evaluated<'v>>), EvalError> {
        Ok(match self {
            Items::List(list) if both => (Ok(Value::Int(index as i64)), Some(list.get(index))),
            Items::List(list) => (list.get(index), None),
            Items::Map(map, keys) => {
                let key = keys[index].clone();
                let value = if both { Some(Ok(map.get(&key)?.unwrap_or(Value::Null))) } else { None };
                (Ok(key), value)
            }
        })
    }
}

/// Returns an element; `None` for an optional one that is absent.
fn present_element<'v>(value: Value<'v>, optional: bool) -> Option<Value<'v>> {
    match value {
        Value::Optional(inner) if optional => inner.map(|inner| Value::clone(&inner)),
        other => Some(other),
    }
}

/// Returns a field as an optional value: absent if the value or its field is.
fn optional_field<'v>(value: &Value<'v>, field: &str) -> Evaluated<'v> {
    match value {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional_field(inner, field),
        Value::Map(map) => Ok(map.field(field)?.map_or(Value::Optional(None), Value::present)),
        _ => fail(format!("no such key: {field}")),
    }
}
