//! The value at a written path, such as `spec.ports[0].port`.

use serde_json::Value;

/// Returns the value at a path of field names, each with the indexes or keys of its lists and maps in brackets.
pub fn value_at_path<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = value;
    for part in path.split('.') {
        let (name, places) = part.split_at(part.find('[').unwrap_or(part.len()));
        if !name.is_empty() {
            value = value.get(name)?;
        }
        for place in places.split('[').filter(|place| !place.is_empty()) {
            let place = place.trim_end_matches(']');
            value = match place.parse::<usize>() {
                Ok(place) => value.get(place)?,
                Err(_) => value.get(place)?,
            };
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_leads_through_fields_lists_and_maps() {
        let object = json!({"spec": {"ports": [{"port": 80}], "map": {"a": [[1, 2]]}}});
        for (path, value) in [
            ("spec.ports[0].port", Some(json!(80))),
            ("spec.map[a][0][1]", Some(json!(2))),
            ("spec.ports[1].port", None),
            ("spec.absent", None),
        ] {
            assert_eq!(value_at_path(&object, path), value.as_ref(), "{path}");
        }
    }
}
