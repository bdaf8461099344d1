//! `KubeSchedulerConfiguration` (kubescheduler.config.k8s.io/v1): from a file's content to profiles. What has no effect here is refused.

use super::filter;
use super::score::PLUGINS;
use crate::object::time::parse_duration;
use crate::world::scheduler_profile::{
    BINDING_TIMEOUT, SchedulerProfile, ScoredResource, ScoringShape, ScoringStrategy,
};
use jiff::SignedDuration;
use serde_json::Value;

/// Fields about a separate scheduler process or its speed: accepted without effect.
const IDLE: [&str; 9] = [
    "apiVersion",
    "kind",
    "clientConnection",
    "enableContentionProfiling",
    "enableProfiling",
    "leaderElection",
    "parallelism",
    "percentageOfNodesToScore",
    "profiles",
];

/// Result of parsing; the error names the field: `profiles[0].plugins.bind: not supported`.
type ConfigResult<T> = Result<T, String>;

/// The profiles of a configuration; those of Kubernetes for a configuration without any.
pub fn profiles(config: &Value) -> ConfigResult<Vec<SchedulerProfile>> {
    let text_of = |field: &str| config[field].as_str().unwrap_or_default();
    if text_of("kind") != "KubeSchedulerConfiguration" || text_of("apiVersion") != "kubescheduler.config.k8s.io/v1" {
        return Err("expected kind KubeSchedulerConfiguration of apiVersion kubescheduler.config.k8s.io/v1".into());
    }
    refuse_other_fields(config, "", &IDLE)?;
    let default_percentage = percentage(config, "")?;
    let list = items(&config["profiles"], "profiles")?;
    if list.is_empty() {
        return Ok(vec![SchedulerProfile {
            percentage: default_percentage.unwrap_or(0),
            ..SchedulerProfile::default()
        }]);
    }
    let mut profiles: Vec<SchedulerProfile> = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let path = format!("profiles[{place}]");
        let mut profile = profile(value, &path)?;
        profile.percentage = percentage(value, &format!("{path}."))?.or(default_percentage).unwrap_or(0);
        if profiles.iter().any(|other| other.name == profile.name) {
            return Err(format!("{path}.schedulerName: Duplicate value: {:?}", &*profile.name));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// `percentageOfNodesToScore`.
fn percentage(value: &Value, path: &str) -> ConfigResult<Option<usize>> {
    let given = &value["percentageOfNodesToScore"];
    let percentage = given.as_u64().filter(|percentage| *percentage <= 100);
    if percentage.is_none() && !given.is_null() {
        return Err(format!("{path}percentageOfNodesToScore: Invalid value: {given}: not in valid range [0-100]"));
    }
    Ok(percentage.map(|percentage| percentage as usize))
}

fn profile(value: &Value, path: &str) -> ConfigResult<SchedulerProfile> {
    refuse_other_fields(value, path, &["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"])?;
    let mut profile =
        SchedulerProfile::named(text(&value["schedulerName"], &format!("{path}.schedulerName"), "default-scheduler")?);
    let plugins = format!("{path}.plugins");
    refuse_other_fields(&value["plugins"], &plugins, &["multiPoint", "filter", "postFilter", "score"])?;
    // A setting for one extension point takes precedence over `multiPoint`.
    for point in ["multiPoint", "filter", "postFilter", "score"] {
        set(&mut profile, point, &value["plugins"][point], &format!("{plugins}.{point}"))?;
    }
    for (place, value) in items(&value["pluginConfig"], &format!("{path}.pluginConfig"))?.iter().enumerate() {
        arguments(&mut profile, value, &format!("{path}.pluginConfig[{place}]"))?;
    }
    Ok(profile)
}

/// Disables and enables plugins at one extension point.
fn set(profile: &mut SchedulerProfile, point: &str, value: &Value, path: &str) -> ConfigResult<()> {
    refuse_other_fields(value, path, &["enabled", "disabled"])?;
    let at = |wanted: &str| point == wanted || point == "multiPoint";
    for (place, one) in items(&value["disabled"], &format!("{path}.disabled"))?.iter().enumerate() {
        let path = format!("{path}.disabled[{place}]");
        let name = known_plugin(one, point, &path, &["name"])?;
        let meant = |plugin: &str| name == "*" || name == plugin;
        if at("filter") {
            profile.without.extend(filter::optional_plugins().filter(|plugin| meant(plugin)));
        }
        if at("score") {
            let disabled = PLUGINS.iter().filter(|plugin| meant(plugin.name));
            profile.weights.extend(disabled.map(|plugin| (plugin.name, 0)));
        }
        profile.preempts &= !(at("postFilter") && meant("DefaultPreemption"));
    }
    for (place, one) in items(&value["enabled"], &format!("{path}.enabled"))?.iter().enumerate() {
        let path = format!("{path}.enabled[{place}]");
        let name = known_plugin(one, point, &path, &["name", "weight"])?;
        if at("filter") {
            profile.without.remove(name);
        }
        let weight = match one["weight"].as_i64() {
            Some(weight) if (0..=1_000_000).contains(&weight) => Some(weight).filter(|weight| *weight > 0),
            None if one["weight"].is_null() => None,
            _ => {
                return Err(format!(
                    "{path}.weight: Invalid value: {}: must be a number from 1 to 1000000",
                    one["weight"]
                ));
            }
        };
        if let Some(plugin) = PLUGINS.iter().find(|plugin| at("score") && plugin.name == name) {
            let usual = if point == "score" { 1 } else { plugin.weight };
            profile.weights.insert(plugin.name, weight.unwrap_or(usual));
        }
        profile.preempts |= at("postFilter") && name == "DefaultPreemption";
    }
    Ok(())
}

/// Returns the name of a plugin that exists at this extension point.
fn known_plugin<'a>(value: &'a Value, point: &str, path: &str, fields: &[&str]) -> ConfigResult<&'a str> {
    refuse_other_fields(value, path, fields)?;
    let name = text(&value["name"], &format!("{path}.name"), "")?;
    let scores = || PLUGINS.iter().any(|plugin| plugin.name == name);
    let filters = || filter::optional_plugins().any(|plugin| plugin == name);
    let exists = match point {
        "filter" => filters(),
        "score" => scores(),
        "postFilter" => name == "DefaultPreemption",
        _ => filters() || scores() || name == "DefaultPreemption",
    };
    if exists || name == "*" { Ok(name) } else { Err(format!("{path}.name: Unsupported value: {name:?}")) }
}

fn arguments(profile: &mut SchedulerProfile, value: &Value, path: &str) -> ConfigResult<()> {
    refuse_other_fields(value, path, &["name", "args"])?;
    let (args, at) = (&value["args"], format!("{path}.args"));
    let with_type = |fields: &[&str]| refuse_other_fields(args, &at, &[&["apiVersion", "kind"], fields].concat());
    match text(&value["name"], &format!("{path}.name"), "")? {
        "NodeResourcesFit" => {
            with_type(&["scoringStrategy"])?;
            if !args["scoringStrategy"].is_null() {
                profile.strategy = strategy(&args["scoringStrategy"], &format!("{at}.scoringStrategy"))?;
            }
        }
        "NodeAffinity" => {
            with_type(&["addedAffinity"])?;
            profile.added_affinity = args["addedAffinity"].clone();
        }
        "PodTopologySpread" => {
            with_type(&["defaultConstraints", "defaultingType"])?;
            profile.constraints = default_constraints(args, &at)?;
        }
        "InterPodAffinity" => {
            with_type(&["hardPodAffinityWeight"])?;
            let given = &args["hardPodAffinityWeight"];
            match given.as_i64() {
                Some(weight) if (0..=100).contains(&weight) => profile.required_affinity_weight = weight,
                None if given.is_null() => {}
                _ => {
                    return Err(format!(
                        "{at}.hardPodAffinityWeight: Invalid value: {given}: not in valid range [0-100]"
                    ));
                }
            }
        }
        "DynamicResources" => {
            with_type(&["bindingTimeout"])?;
            profile.binding_timeout = binding_timeout(&args["bindingTimeout"], &format!("{at}.bindingTimeout"))?;
        }
        other => {
            return Err(format!(
                "{path}.name: Unsupported value: {other:?}: arguments of this plugin change nothing here"
            ));
        }
    }
    Ok(())
}

/// `bindingTimeout`: a duration of at least one second.
fn binding_timeout(value: &Value, at: &str) -> ConfigResult<SignedDuration> {
    if value.is_null() {
        return Ok(BINDING_TIMEOUT);
    }
    let duration = parse_duration(value.as_str().unwrap_or_default()).ok();
    let is_long = |duration: &SignedDuration| *duration >= SignedDuration::from_secs(1);
    duration.filter(is_long).ok_or_else(|| format!("{at}: Invalid value: {value}: must be at least 1 second"))
}

/// The constraints of pods that have none of their own; `None` for Kubernetes' own.
fn default_constraints(args: &Value, at: &str) -> ConfigResult<Option<Vec<Value>>> {
    let constraints = items(&args["defaultConstraints"], &format!("{at}.defaultConstraints"))?;
    match (text(&args["defaultingType"], &format!("{at}.defaultingType"), "System")?, constraints.is_empty()) {
        ("List", _) => {}
        ("System", true) => return Ok(None),
        ("System", false) => {
            let rule = "when .defaultingType is System, no default constraints may be there";
            return Err(format!("{at}.defaultConstraints: Invalid value: {rule}"));
        }
        (other, _) => {
            let supported = "supported values: \"System\", \"List\"";
            return Err(format!("{at}.defaultingType: Unsupported value: {other:?}: {supported}"));
        }
    }
    for (place, constraint) in constraints.iter().enumerate() {
        check_default_constraint(constraint, &format!("{at}.defaultConstraints[{place}]"))?;
    }
    Ok(Some(constraints.to_vec()))
}

fn check_default_constraint(constraint: &Value, path: &str) -> ConfigResult<()> {
    refuse_other_fields(constraint, path, &["maxSkew", "topologyKey", "whenUnsatisfiable"])?;
    let (skew, mode_path) = (&constraint["maxSkew"], format!("{path}.whenUnsatisfiable"));
    let mode = text(&constraint["whenUnsatisfiable"], &mode_path, "")?;
    if skew.as_i64().is_none_or(|skew| skew < 1) {
        return Err(format!("{path}.maxSkew: Invalid value: {skew}: must be greater than zero"));
    }
    if text(&constraint["topologyKey"], &format!("{path}.topologyKey"), "")?.is_empty() {
        return Err(format!("{path}.topologyKey: Required value: can not be empty"));
    }
    if !["DoNotSchedule", "ScheduleAnyway"].contains(&mode) {
        let supported = "supported values: \"DoNotSchedule\", \"ScheduleAnyway\"";
        return Err(format!("{mode_path}: Unsupported value: {mode:?}: {supported}"));
    }
    Ok(())
}

fn strategy(value: &Value, path: &str) -> ConfigResult<ScoringStrategy> {
    refuse_other_fields(value, path, &["type", "resources", "requestedToCapacityRatio"])?;
    let shape = match text(&value["type"], &format!("{path}.type"), "LeastAllocated")? {
        "LeastAllocated" => ScoringShape::Least,
        "MostAllocated" => ScoringShape::Most,
        "RequestedToCapacityRatio" => {
            ratio(&value["requestedToCapacityRatio"], &format!("{path}.requestedToCapacityRatio"))?
        }
        other => {
            let supported = "\"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"";
            return Err(format!("{path}.type: Unsupported value: {other:?}: supported values: {supported}"));
        }
    };
    let mut resources = Vec::new();
    for (place, one) in items(&value["resources"], &format!("{path}.resources"))?.iter().enumerate() {
        let path = format!("{path}.resources[{place}]");
        refuse_other_fields(one, &path, &["name", "weight"])?;
        let weight = if one["weight"].is_null() { Some(1) } else { one["weight"].as_i64() };
        let Some(weight) = weight.filter(|weight| (1..=100).contains(weight)) else {
            return Err(format!(
                "{path}.weight: Invalid value: {}: resource weight should be in a valid range of [1-100]",
                one["weight"]
            ));
        };
        resources.push((ScoredResource::named(text(&one["name"], &format!("{path}.name"), "")?), weight));
    }
    let usual = SchedulerProfile::default().strategy.resources;
    Ok(ScoringStrategy { shape, resources: if resources.is_empty() { usual } else { resources } })
}

/// Points with rising use; their scores, up to 10, stand for up to 100.
fn ratio(value: &Value, path: &str) -> ConfigResult<ScoringShape> {
    refuse_other_fields(value, path, &["shape"])?;
    let path = format!("{path}.shape");
    let mut points: Vec<(i64, i64)> = Vec::new();
    for (place, one) in items(&value["shape"], &path)?.iter().enumerate() {
        refuse_other_fields(one, &format!("{path}[{place}]"), &["utilization", "score"])?;
        let number = |field: &str, most: i64| {
            let number = if one[field].is_null() { Some(0) } else { one[field].as_i64() };
            let problem =
                || format!("{path}[{place}].{field}: Invalid value: {}: must be a number from 0 to {most}", one[field]);
            number.filter(|number| (0..=most).contains(number)).ok_or_else(problem)
        };
        let point = (number("utilization", 100)?, number("score", 10)? * 10);
        if points.last().is_some_and(|last| last.0 >= point.0) {
            return Err(format!(
                "{path}[{place}].utilization: Invalid value: {}: utilization values must be sorted in increasing order",
                point.0
            ));
        }
        points.push(point);
    }
    if points.is_empty() {
        Err(format!("{path}: Required value: at least one point must be specified"))
    } else {
        Ok(ScoringShape::Ratio(points))
    }
}

/// Refuses every other field.
fn refuse_other_fields(value: &Value, path: &str, fields: &[&str]) -> ConfigResult<()> {
    let dot = if path.is_empty() { "" } else { "." };
    match value {
        Value::Null => Ok(()),
        Value::Object(map) => match map.keys().find(|field| !fields.contains(&field.as_str())) {
            None => Ok(()),
            Some(field) => Err(format!("{path}{dot}{field}: not supported (supported here: {})", fields.join(", "))),
        },
        _ => Err(format!("{path}: Invalid value: expected fields")),
    }
}

fn items<'a>(value: &'a Value, path: &str) -> ConfigResult<&'a [Value]> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        _ => Err(format!("{path}: Invalid value: expected a list")),
    }
}

fn text<'a>(value: &'a Value, path: &str, default: &'a str) -> ConfigResult<&'a str> {
    match value {
        Value::Null => Ok(default),
        Value::String(text) => Ok(text),
        other => Err(format!("{path}: Invalid value: {other}: expected a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(profiles_of: Value) -> ConfigResult<Vec<SchedulerProfile>> {
        let (version, kind) = ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration");
        profiles(&json!({"apiVersion": version, "kind": kind, "parallelism": 16, "profiles": profiles_of}))
    }

    #[test]
    fn plugins_are_disabled_enabled_and_weighted() {
        assert_eq!(read(json!([])).unwrap(), [SchedulerProfile::default()]);
        let plugins = json!({
            "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 7}, {"name": "NodeAffinity"}]},
            "filter": {"disabled": [{"name": "NodePorts"}]}, "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
            "multiPoint": {"disabled": [{"name": "TaintToleration"}]},
        });
        let found = read(json!([{"schedulerName": "dense", "plugins": plugins}, {}])).unwrap();
        let weights: Vec<i64> = PLUGINS.iter().map(|plugin| found[0].weights[plugin.name]).collect();
        assert_eq!(weights, [7, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(found[0].without, ["NodePorts", "TaintToleration"].into());
        assert!(!found[0].preempts && &*found[1].name == "default-scheduler");
    }

    #[test]
    fn arguments_of_plugins() {
        let fit = json!({"scoringStrategy": {
            "type": "RequestedToCapacityRatio", "resources": [{"name": "gpu", "weight": 3}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
        }});
        let spread = json!({"defaultingType": "List", "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]});
        let found = read(json!([{"pluginConfig": [
            {"name": "NodeResourcesFit", "args": fit}, {"name": "PodTopologySpread", "args": spread},
        ]}]));
        let found = found.unwrap().remove(0);
        assert_eq!(
            found.strategy,
            ScoringStrategy {
                shape: ScoringShape::Ratio(vec![(0, 0), (100, 100)]),
                resources: vec![(ScoredResource::named("gpu"), 3)]
            }
        );
        assert_eq!(found.constraints.map(|list| list.len()), Some(1));
        let system = json!({"name": "PodTopologySpread", "args": {"defaultingType": "System"}});
        let none = json!({"name": "PodTopologySpread", "args": {"defaultingType": "List"}});
        let weight = json!({"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}});
        let found = read(json!([{"pluginConfig": [system, weight]}, {"schedulerName": "b", "pluginConfig": [none]}]));
        let found = found.unwrap();
        assert_eq!((&found[0].constraints, found[0].required_affinity_weight), (&None, 7));
        assert_eq!(found[1].constraints, Some(vec![]));
    }

    #[test]
    fn unsupported_configuration_is_refused_by_its_path() {
        let table = [
            (json!([{"plugins": {"bind": {}}}]), "profiles[0].plugins.bind: not supported"),
            (
                json!([{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]}]),
                "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101",
            ),
            (json!([{}, {}]), "profiles[1].schedulerName: Duplicate value: \"default-scheduler\""),
            (
                json!([{"plugins": {"score": {"enabled": [{"name": "Mine"}]}}}]),
                "profiles[0].plugins.score.enabled[0].name: Unsupported value: \"Mine\"",
            ),
            (
                json!([{"pluginConfig": [{"name": "Mine"}]}]),
                "profiles[0].pluginConfig[0].name: Unsupported value: \"Mine\"",
            ),
            (
                json!([{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": []}}]}]),
                "profiles[0].pluginConfig[0].args.ignoredResources: not supported",
            ),
            (
                json!([{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}}]}]),
                "profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: \"Best\"",
            ),
        ];
        for (profiles, problem) in table {
            let told = read(profiles).unwrap_err();
            assert!(told.starts_with(problem), "{told}");
        }
        assert!(profiles(&json!({"kind": "Pod"})).unwrap_err().starts_with("expected kind KubeSchedulerConfiguration"));
    }
}
