//! ServiceCIDR (networking.k8s.io/v1).

use super::catalogue::merge_rules;
use super::shared::{address, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    generation: false,
    warnings,
    status_metadata: &[],
    merge_rules: &merge_rules::WITH_CONDITIONS,
    ..Kind::new::<ServiceCIDR>("servicecidrs.networking.k8s.io", "v1", "ServiceCIDR", &view::networking::SERVICE_CIDR)
};

/// The range that every cluster has.
pub const DEFAULT: &str = "kubernetes";

const MAX_RANGES: usize = 2;

/// Warns of a range that no Service gets an address from.
fn warnings(range: &Object) -> Vec<String> {
    let text =
        "spec.cidrs: kloop gives Services addresses of its own range (see ServiceCIDR \"kubernetes\") and of no other";
    Vec::from_iter((range.name() != DEFAULT).then(|| text.to_owned()))
}

impl Typed for ServiceCIDR {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.spec.get_or_insert_default().cidrs);
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec").child("cidrs");
        let [ranges, before] = [Some(self), old].map(|range| {
            let spec = range.and_then(|range| range.spec.as_ref());
            spec.and_then(|spec| spec.cidrs.as_deref()).unwrap_or_default()
        });
        if old.is_some() {
            // A second family may be added to the first.
            let is_upgrade = before.len() == 1 && ranges.len() == MAX_RANGES && ranges[0] == before[0];
            if ranges.len() == before.len() {
                let pairs = ranges.iter().zip(before).enumerate();
                return pairs.for_each(|(index, (new, old))| errors.immutable(&path.index(index), new, old));
            }
            if !is_upgrade {
                return errors.immutable(&path, &ranges, &before);
            }
        }
        let is_v6 = |range: &String| range.contains(':');
        match ranges {
            [] => errors.required(&path, "at least one CIDR required"),
            [_, _, _, ..] => errors.invalid(&path, json!(self.spec), "may only hold up to 2 values"),
            [one, other] if is_v6(one) == is_v6(other) => {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                errors.invalid(&path, json!(self.spec), detail);
            }
            ranges => {
                for (index, range) in ranges.iter().enumerate() {
                    address::check_canonical_range(range, &path.index(index), errors);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::Value;

    fn wrong(ranges: Value, old: Option<Value>) -> Vec<String> {
        let range = |cidrs: Value| json!({"metadata": {"name": "a"}, "spec": {"cidrs": cidrs}});
        let old = old.map(|ranges| Object(range(ranges)));
        testing::field_errors::<ServiceCIDR>(&range(ranges), old.as_ref()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(wrong(json!(["10.0.0.0/8", "2001:db8::/64"]), None), Vec::<String>::new());
        let cases = [
            (json!([]), "spec.cidrs: Required value: at least one CIDR required"),
            (
                json!(["a"]),
                "spec.cidrs[0]: Invalid value: \"a\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
            (
                json!(["10.0.0.1/8"]),
                "spec.cidrs[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
            ),
            (
                json!(["10.0.0.00/8"]),
                "spec.cidrs[0]: Invalid value: \"10.0.0.00/8\": must not have leading 0s in IP or prefix length",
            ),
            (
                json!(["2001:DB8::/64"]),
                "spec.cidrs[0]: Invalid value: \"2001:DB8::/64\": must be in canonical form (\"2001:db8::/64\")",
            ),
        ];
        for (ranges, expected) in cases {
            assert_eq!(wrong(ranges.clone(), None), [expected], "{ranges}");
        }
        for ranges in [json!(["10.0.0.0/8", "11.0.0.0/8"]), json!(["10.0.0.0/8", "::/8", "11.0.0.0/8"])] {
            let found = wrong(ranges.clone(), None);
            assert!(found.len() == 1 && found[0].starts_with("spec.cidrs: Invalid value: {"), "{found:?}");
        }
    }

    #[test]
    fn range_of_the_other_family_may_be_added() {
        let old = || Some(json!(["10.0.0.0/8"]));
        assert_eq!(wrong(json!(["10.0.0.0/8", "2001:db8::/64"]), old()), Vec::<String>::new());
        let fixed = ["spec.cidrs[0]: Invalid value: \"11.0.0.0/8\": field is immutable"];
        assert_eq!(wrong(json!(["11.0.0.0/8"]), old()), fixed);
    }

    #[test]
    fn ranges_without_effect_are_warned_of() {
        let named = |name: &str| Object(json!({"metadata": {"name": name}}));
        assert!(warnings(&named(DEFAULT)).is_empty());
        assert_eq!(warnings(&named("more")).len(), 1);
    }
}
