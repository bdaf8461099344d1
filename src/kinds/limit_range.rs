//! LimitRange (core/v1).

use super::shared::amount::{self, quantity};
use super::shared::{names, omit, resource_names};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, BTreeSet};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["limits"],
    status: false,
    generation: false,
    create_on_update: true,
    ..Kind::new::<LimitRange>("limitranges", "v1", "LimitRange", &view::limit_range::VIEW)
};

type Amounts = BTreeMap<String, Quantity>;

impl Typed for LimitRange {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        for item in &mut self.spec.get_or_insert_default().limits {
            if item.type_ == "Container" {
                default_item(item);
            }
            let maps = [
                &mut item.default,
                &mut item.default_request,
                &mut item.max,
                &mut item.min,
                &mut item.max_limit_request_ratio,
            ];
            for amounts in maps {
                omit::empty(amounts);
                amount::round_up(amounts);
            }
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let limits = self.spec.as_ref().map(|spec| spec.limits.as_slice()).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for (index, item) in limits.iter().enumerate() {
            let path = FieldPath::root("spec").child("limits").index(index);
            check_type(&item.type_, &path.child("type"), errors);
            if !seen.insert(item.type_.as_str()) {
                errors.duplicate(&path.child("type"), item.type_.as_str());
            }
            check_item(item, &path, errors);
        }
    }
}

/// Defaults the default limit to the maximum, and the default request to the limit or minimum.
fn default_item(item: &mut LimitRangeItem) {
    let fill = |to: &mut Option<Amounts>, from: &Option<Amounts>| {
        let to = to.get_or_insert_default();
        for (name, amount) in from.iter().flatten() {
            to.entry(name.clone()).or_insert_with(|| amount.clone());
        }
    };
    fill(&mut item.default, &item.max);
    fill(&mut item.default_request, &item.default);
    fill(&mut item.default_request, &item.min);
}

fn check_type(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let problems = names::qualified(name);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&name);
    if problems.is_empty() && !name.contains('/') && !standard {
        errors.invalid(path, name, "must be a standard limit type or fully qualified");
    }
    errors.each_invalid(path, name, problems);
}

fn check_item(item: &LimitRangeItem, path: &FieldPath, errors: &mut FieldErrors) {
    let check_names = |amounts: &Option<Amounts>, field: &str, errors: &mut FieldErrors| {
        for name in amounts.iter().flatten().map(|(name, _)| name) {
            let path = path.child(field).key(name);
            match item.type_.as_str() {
                "Pod" | "Container" => resource_names::check_container(name, &path, errors),
                _ => resource_names::check(name, &path, errors),
            }
        }
    };
    check_names(&item.max, "max", errors);
    check_names(&item.min, "min", errors);
    for (field, amounts) in [("default", &item.default), ("defaultRequest", &item.default_request)] {
        if item.type_ != "Pod" {
            check_names(amounts, field, errors);
        } else if amounts.as_ref().is_some_and(|amounts| !amounts.is_empty()) {
            errors.forbidden(&path.child(field), "may not be specified when `type` is 'Pod'");
        }
    }
    check_names(&item.max_limit_request_ratio, "maxLimitRequestRatio", errors);
    let has_storage = |amounts: &Option<Amounts>| amounts.as_ref().is_some_and(|all| all.contains_key("storage"));
    if item.type_ == "PersistentVolumeClaim" && !has_storage(&item.min) && !has_storage(&item.max) {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    let maps = [&item.max, &item.min, &item.default, &item.default_request, &item.max_limit_request_ratio];
    let names: BTreeSet<&String> = maps.into_iter().flatten().flat_map(BTreeMap::keys).collect();
    for name in names {
        check_order(item, name, path, errors);
    }
}

/// Checks that minimum, default request, default limit and maximum do not decrease in this order.
fn check_order(item: &LimitRangeItem, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let amount = |amounts: &Option<Amounts>| amounts.as_ref().and_then(|amounts| amounts.get(name).map(quantity));
    let (min, max) = (amount(&item.min), amount(&item.max));
    let (request, limit) = (amount(&item.default_request), amount(&item.default));
    let pairs = [
        ("min", min, "min value", max, "max value", min),
        ("defaultRequest", min, "min value", request, "default request value", request),
        ("defaultRequest", request, "default request value", max, "max value", request),
        ("defaultRequest", request, "default request value", limit, "default limit value", request),
        ("default", min, "min value", limit, "default value", min),
        ("default", limit, "default value", max, "max value", max),
    ];
    for (field, low, low_name, high, high_name, shown) in pairs {
        if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
            && low > high
        {
            let detail = format!("{low_name} {low} is greater than {high_name} {high}");
            errors.invalid(&path.child(field).key(name), shown.to_string(), &detail);
        }
    }
    if let Some(ratio) = amount(&item.max_limit_request_ratio)
        && ratio.as_f64() < 1.0
    {
        let path = path.child("maxLimitRequestRatio").key(name);
        errors.invalid(&path, ratio.to_string(), &format!("ratio {ratio} is less than 1"));
    }
    if let (Some(ratio), Some(min), Some(max)) = (amount(&item.max_limit_request_ratio), min, max)
        && min.as_f64() > 0.0
        && ratio.as_f64() > max.as_f64() / min.as_f64()
    {
        let path = path.child("maxLimitRequestRatio").key(name);
        let most = max.as_f64() / min.as_f64();
        errors.invalid(&path, ratio.to_string(), &format!("ratio {ratio} is greater than max/min = {most:.6}"));
    }
    if let (Some(request), Some(limit)) = (request, limit)
        && request != limit
        && !resource_names::may_overcommit(name)
    {
        let detail = format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        errors.invalid(&path.child("defaultRequest").key(name), request.to_string(), &detail);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::json;

    #[test]
    fn types_and_names_of_resources_are_checked() {
        let found = |item| refusals(json!({"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [item]}}));
        assert_eq!(found(json!({"type": "Container", "max": {"cpu": "1"}})), Vec::<String>::new());
        let untyped = found(json!({"type": "", "max": {"cpu": "1"}}));
        assert_eq!(untyped[0], "spec.limits[0].type: Invalid value: \"\": name part must be non-empty");
        let ratio = found(json!({"type": "Container", "maxLimitRequestRatio": {"pods": "2"}}));
        let problem = "must be a standard resource for containers";
        assert_eq!(ratio, [format!("spec.limits[0].maxLimitRequestRatio[pods]: Invalid value: \"pods\": {problem}")]);
        let unknown = found(json!({"type": "Container", "max": {"x": "2"}}));
        let two = ["must be a standard resource type or fully qualified", problem];
        for list in ["max", "default", "defaultRequest"] {
            let expected = two.map(|problem| format!("spec.limits[0].{list}[x]: Invalid value: \"x\": {problem}"));
            assert!(expected.iter().all(|line| unknown.contains(line)), "{unknown:?}");
        }
    }
}
