//! Named formats of texts (`k8s.io/apiserver/pkg/cel/library/format.go`).
//!
//! Start reading at [`FORMATS`].

use crate::object::names;
use crate::object::time::is_date;
use base64::Engine;

/// A named format.
#[derive(Debug)]
pub struct Format {
    /// The name.
    pub name: &'static str,
    /// Returns the reasons why a text does not have the format.
    pub check: fn(&str) -> Vec<String>,
    /// The length of its pattern, for costs.
    pub size: u64,
}

/// All formats.
pub static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", check: label_1123, size: 30 },
    Format { name: "dns1123Subdomain", check: names::subdomain, size: 60 },
    Format { name: "dns1035Label", check: label_1035, size: 30 },
    Format { name: "qualifiedName", check: names::qualified, size: 60 },
    Format { name: "dns1123LabelPrefix", check: |text| label_1123(text.trim_end_matches('-')), size: 30 },
    Format { name: "dns1123SubdomainPrefix", check: |text| names::subdomain(text.trim_end_matches('-')), size: 60 },
    Format { name: "dns1035LabelPrefix", check: |text| label_1035(text.trim_end_matches('-')), size: 30 },
    Format { name: "labelValue", check: names::label_value, size: 40 },
    Format { name: "uri", check: |text| super::url::parse(text).err().into_iter().collect(), size: 2000 },
    Format { name: "uuid", check: |text| reason_unless(is_uuid(text), "does not match the UUID format"), size: 70 },
    Format { name: "byte", check: |text| reason_unless(decode_base64(text).is_some(), "invalid base64"), size: 90 },
    Format { name: "date", check: |text| reason_unless(is_date(text), "invalid date"), size: 100 },
    Format {
        name: "datetime",
        check: |text| reason_unless(crate::object::time::parse_rfc3339(text).is_ok(), "invalid datetime"),
        size: 100,
    },
];

fn reason_unless(fits: bool, why: &str) -> Vec<String> {
    if fits { Vec::new() } else { vec![why.to_owned()] }
}

fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    let groups = [8, 4, 4, 4, 12];
    let is_grouped = !text.contains('-') || text.split('-').map(str::len).eq(groups);
    digits.clone().count() == 32 && digits.clone().all(|byte| byte.is_ascii_hexdigit()) && is_grouped
}

fn label_1123(text: &str) -> Vec<String> {
    names::label(text)
}

fn label_1035(text: &str) -> Vec<String> {
    names::label_1035(text)
}

/// Decodes base64.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

/// Encodes base64.
pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
