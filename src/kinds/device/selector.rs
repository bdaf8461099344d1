//! CEL expressions that select devices (`dynamic-resource-allocation/cel`).
//!
//! Knows: the variable `device` that they see. Never: decides which devices are free. Start reading at [`DeviceSelection::compile`].

use crate::cel::foreign::semver;
use crate::cel::value::{Map, MapKey, Value};
use crate::cel::{Context, Declarations, Program, Type, cache};
use crate::object::Quantity;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum cost of the evaluation for one device (`CELSelectorExpressionMaxCost`).
const MAX_COST: u64 = 1_000_000;

fn declarations() -> Declarations {
    Declarations::default().declare("device", Type::Dyn)
}

type Entries<'v> = BTreeMap<MapKey, Value<'v>>;

/// A compiled selector.
pub struct DeviceSelection {
    program: Arc<Program>,
    /// The texts in the expression, any of which can be a domain: the attributes of a domain that a device lacks are an empty map.
    domains: Vec<String>,
}

impl DeviceSelection {
    /// Compiles an expression; the error is that of cel-go.
    pub fn compile(expression: &str) -> Result<DeviceSelection, String> {
        let program = cache::compile_and_keep(expression, &declarations()).map_err(|issues| issues.to_string())?;
        if !matches!(program.output, Type::Bool | Type::Dyn) {
            return Err("must evaluate to bool or the unknown type, not ".to_owned() + &program.output.to_string());
        }
        let quoted = |quote: char| expression.split(quote).skip(1).step_by(2).map(str::to_owned);
        let mut domains: Vec<String> = quoted('"').chain(quoted('\'')).collect();
        domains.sort();
        domains.dedup();
        Ok(DeviceSelection { program, domains })
    }

    /// Whether this process has compiled the expression before.
    pub fn is_compiled(expression: &str) -> bool {
        cache::find_compiled(expression, &declarations()).is_some()
    }

    /// Evaluates the expression for a device of a driver: whether it is selected, and the cost.
    pub fn evaluate(&self, driver: &str, device: &Device) -> Result<(bool, u64), String> {
        let mut attributes = self.empty_domains();
        for (name, attribute) in device.attributes.iter().flatten() {
            insert(&mut attributes, (driver, name), read_attribute(attribute)?);
        }
        let mut capacity = self.empty_domains();
        for (name, amount) in device.capacity.iter().flatten() {
            let amount = Quantity::parse(&amount.value.0).map_err(|error| format!("capacity {name}: {error}"))?;
            insert(&mut capacity, (driver, name), Value::Quantity(amount));
        }
        let fields = [
            ("driver", Value::text(driver)),
            ("attributes", to_map(attributes)),
            ("capacity", to_map(capacity)),
            ("allowMultipleAllocations", Value::Bool(device.allow_multiple_allocations == Some(true))),
        ];
        let fields = fields.into_iter().map(|(name, value)| (MapKey::String(name.into()), value)).collect();
        let mut context = Context::default();
        context.bind("device", Value::Map(Map::Owned(Arc::new(fields))));
        let outcome = context.evaluate(&self.program, MAX_COST);
        let result = outcome.result.map_err(|error| error.to_string())?;
        let is_selected =
            result.as_bool().ok_or_else(|| format!("expression returned {}, not a bool", result.type_name()))?;
        // Each domain is an entry of both maps.
        Ok((is_selected, outcome.cost + self.domains.len() as u64))
    }

    fn empty_domains<'v>(&self) -> BTreeMap<String, Entries<'v>> {
        self.domains.iter().map(|domain| (domain.clone(), Entries::new())).collect()
    }
}

/// Inserts a value by its qualified name; the domain of a name without one is the driver.
fn insert<'v>(domains: &mut BTreeMap<String, Entries<'v>>, (driver, name): (&str, &str), value: Value<'v>) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    domains.entry(domain.to_owned()).or_default().insert(MapKey::String(id.into()), value);
}

fn to_map(domains: BTreeMap<String, Entries<'_>>) -> Value<'_> {
    let entries = domains
        .into_iter()
        .map(|(domain, entries)| (MapKey::String(domain.into()), Value::Map(Map::Owned(Arc::new(entries)))));
    Value::Map(Map::Owned(Arc::new(entries.collect())))
}

fn read_attribute<'v>(attribute: &DeviceAttribute) -> Result<Value<'v>, String> {
    let version = |text: &String| {
        let parsed = semver::parse(text).map_err(|why| format!("attribute is not a version: {why}"))?;
        Ok::<Value<'v>, String>(Value::Semver(Arc::new(parsed)))
    };
    Ok(match attribute {
        DeviceAttribute { bool: Some(value), .. } => Value::Bool(*value),
        DeviceAttribute { int: Some(value), .. } => Value::Int(*value),
        DeviceAttribute { string: Some(value), .. } => Value::text(value),
        DeviceAttribute { version: Some(value), .. } => version(value)?,
        DeviceAttribute { bools: Some(values), .. } => {
            Value::list(values.iter().map(|value| Value::Bool(*value)).collect())
        }
        DeviceAttribute { ints: Some(values), .. } => {
            Value::list(values.iter().map(|value| Value::Int(*value)).collect())
        }
        DeviceAttribute { strings: Some(values), .. } => Value::list(values.iter().map(Value::text).collect()),
        DeviceAttribute { versions: Some(values), .. } => {
            Value::list(values.iter().map(version).collect::<Result<_, _>>()?)
        }
        _ => return Err("attribute has no value".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    fn matches(expression: &str) -> Result<bool, String> {
        let device = json!({
            "name": "d",
            "attributes": {
                "model": {"string": "large"}, "other.com/cores": {"int": 8}, "ready": {"bool": true},
                "driverVersion": {"version": "1.2.3"},
            },
            "capacity": {"memory": {"value": "16Gi"}},
        });
        let device = Device::deserialize(&device).unwrap();
        DeviceSelection::compile(expression)?.evaluate("gpu.example.com", &device).map(|(is_selected, _)| is_selected)
    }

    #[test]
    fn selectors_see_driver_attributes_and_capacity() {
        for (expression, expected) in [
            (r#"device.driver == "gpu.example.com""#, true),
            (r#"device.attributes["gpu.example.com"].model == "large""#, true),
            (r#"device.attributes["other.com"].cores >= 16"#, false),
            (r#"device.attributes["gpu.example.com"].ready"#, true),
            (r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.2.0"))"#, true),
            (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("8Gi")) >= 0"#, true),
            (r#""model" in device.attributes["none.com"]"#, false),
            (r#"has(device.attributes['none.com'].model)"#, false),
        ] {
            assert_eq!(matches(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn bad_selectors_are_explained() {
        assert!(matches("device.").is_err_and(|why| why.contains("Syntax error")));
        assert!(matches(r#""text""#).is_err_and(|why| why.starts_with("must evaluate to bool")));
        let missing = matches(r#"device.attributes["gpu.example.com"].none == 1"#);
        assert!(missing.clone().is_err_and(|why| why.contains("no such key")), "{missing:?}");
    }
}
