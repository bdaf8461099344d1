//! Syntax of names, keys and short texts, with Kubernetes' error messages (`k8s.io/apimachinery/pkg/util/validation`).
//!
//! Each function checks one form and returns the problems, none for valid input.
//! Never: knows the field of a text.
//! Start reading at [`label`].

/// The forms that selectors need too.
pub use super::label::{key_problems as qualified, subdomain_problems as subdomain, value_problems as label_value};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// RFC 1123 label: up to 63 lower case alphanumerics and dashes.
pub fn label(name: &str) -> Vec<String> {
    let mut problems = longer_than(name, 63);
    if !is_label(name) {
        problems.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                        and must start and end with an alphanumeric character";
            with_regex(rule, LABEL, &["my-name", "123-abc"])
        });
    }
    problems
}

/// Validates a subdomain whose labels may contain underscores, as in the search paths of a pod.
pub fn subdomain_with_underscores(name: &str) -> Vec<String> {
    let mut problems = longer_than(name, 253);
    let is_good =
        |label: &str| is_label(&label.strip_prefix('_').unwrap_or(label).replace('_', "-")) && !label.ends_with('_');
    if !name.split('.').all(|label| is_good(label) && !label.starts_with("__")) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start \
                    and end with an alphanumeric character";
        let pattern = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
        problems.push(with_regex(rule, pattern, &["example.com"]));
    }
    problems
}

/// Validates a subdomain after `*.`, for the hosts of an Ingress.
pub fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut problems = longer_than(name, 253);
    if !name.strip_prefix("*.").is_some_and(is_subdomain) {
        let rule = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
                    which must consist of lower case alphanumeric characters, '-' or '.' \
                    and end with an alphanumeric character";
        problems.push(with_regex(rule, &format!(r"\*\.{SUBDOMAIN}"), &["*.example.com"]));
    }
    problems
}

/// RFC 1035 label: an RFC 1123 label that starts with a letter.
pub fn label_1035(name: &str) -> Vec<String> {
    let mut problems = longer_than(name, 63);
    if !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                    start with an alphabetic character, and end with an alphanumeric character";
        problems.push(with_regex(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    problems
}

/// Validates the reason of a condition.
pub fn condition_reason(reason: &str) -> Vec<String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_inner = |byte: u8| is_word(byte) || matches!(byte, b',' | b':');
    let bytes = reason.as_bytes();
    let fits = bytes.iter().all(|byte| is_inner(*byte))
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| is_word(*byte));
    if fits {
        return Vec::new();
    }
    let rule = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
                characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![with_regex(rule, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)]
}

/// Validates a path segment of a URL.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_prefix(name),
    }
}

/// Validates the start of a path segment of a URL.
pub fn path_segment_prefix(name: &str) -> Vec<String> {
    let found = ["/", "%"].iter().filter(|banned| name.contains(**banned));
    found.map(|banned| format!("may not contain '{banned}'")).collect()
}

/// Validates the name of a container port, which a Service's `targetPort` may refer to.
pub fn port_name(name: &str) -> Vec<String> {
    let mut problems = longer_than(name, 15);
    let mut must = |holds: bool, message: &str| {
        if !holds {
            problems.push(message.to_owned());
        }
    };
    let plain = !name.is_empty() && name.bytes().all(is_label_byte);
    must(plain, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    must(name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    must(!name.contains("--"), "must not contain consecutive hyphens");
    must(!name.starts_with('-') && !name.ends_with('-'), "must not begin or end with a hyphen");
    problems
}

/// Validates the number of a port.
pub fn port(number: i64) -> Vec<String> {
    in_range(number, 1, 65535)
}

/// Validates a number in an inclusive range.
pub fn in_range(number: i64, low: i64, high: i64) -> Vec<String> {
    let inside = (low..=high).contains(&number);
    if inside { Vec::new() } else { vec![format!("must be between {low} and {high}, inclusive")] }
}

/// Validates a percentage such as `25%`.
pub fn percent(text: &str) -> Vec<String> {
    let number = text.strip_suffix('%');
    if number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Vec::new();
    }
    let rule = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![with_regex(rule, "[0-9]+%", &["1%", "93%"])]
}

/// Name of an environment variable: printable ASCII without `=` (relaxed since Kubernetes 1.32).
pub fn env(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Name of an environment variable in the strict form that files of variables need.
pub fn env_identifier(name: &str) -> Vec<String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let mut problems = Vec::new();
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.bytes().all(is_part) {
        let rule = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not \
                    start with a digit";
        problems.push(with_regex(rule, "[-._a-zA-Z][-._a-zA-Z0-9]*", &["my.env-name", "MY_ENV.NAME", "MyEnvName1"]));
    }
    problems.extend(leaves_folder(name));
    problems
}

/// Identifier of the language C.
pub fn c_identifier(name: &str) -> Vec<String> {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let starts = name.bytes().next().is_some_and(is_start);
    if starts && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit()) {
        return Vec::new();
    }
    let rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
                characters or '_'";
    vec![with_regex(rule, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// Key in a ConfigMap or Secret, which becomes a file name.
pub fn config_key(key: &str) -> Vec<String> {
    let mut problems = longer_than(key, 253);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        problems.push(with_regex(rule, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    problems.extend(leaves_folder(key));
    problems
}

/// Refuses `.`, `..` and names that start with `..`, which would leave or shadow the folder of a volume's keys.
fn leaves_folder(key: &str) -> Option<String> {
    match key {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        key if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// Name of an HTTP header.
pub fn http_header(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![with_regex(rule, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// Validates an IPv4 or IPv6 address.
pub fn ip(text: &str) -> Vec<String> {
    match text.parse::<std::net::IpAddr>() {
        Ok(_) => Vec::new(),
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// Whether an address range contains another, smaller one.
pub fn is_strict_subset(inner: &str, outer: &str) -> bool {
    let parts = |text: &str| -> Option<(std::net::IpAddr, u32)> {
        let (address, bits) = text.split_once('/')?;
        Some((address.parse().ok()?, bits.parse().ok()?))
    };
    let (Some((inner, inner_bits)), Some((outer, outer_bits))) = (parts(inner), parts(outer)) else { return false };
    let leading = |all: u128, width: u32, bits: u32| all.checked_shr(width.saturating_sub(bits)).unwrap_or(0);
    let same = match (inner, outer) {
        (std::net::IpAddr::V4(one), std::net::IpAddr::V4(other)) => {
            let number = |ip: std::net::Ipv4Addr| leading(u128::from(u32::from(ip)), 32, outer_bits);
            number(one) == number(other)
        }
        (std::net::IpAddr::V6(one), std::net::IpAddr::V6(other)) => {
            leading(one.into(), 128, outer_bits) == leading(other.into(), 128, outer_bits)
        }
        _ => false,
    };
    same && inner_bits > outer_bits
}

/// Validates an address range such as `10.0.0.0/8`.
pub fn cidr(text: &str) -> Vec<String> {
    let valid = text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(_)) => 32,
            Ok(std::net::IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    });
    if valid {
        return Vec::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

fn is_label(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_label_byte) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn longer_than(name: &str, most: usize) -> Vec<String> {
    if name.len() > most { vec![format!("must be no more than {most} characters")] } else { Vec::new() }
}

/// Joins the rule, examples and regular expression, with Kubernetes' blanks between examples.
fn with_regex(rule: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", quoted.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule and texts for it.
    type NameCase = (fn(&str) -> Vec<String>, &'static [&'static str]);

    #[test]
    fn good_names_have_no_problems() {
        let good: &[NameCase] = &[
            (label, &["a", "1abc", "a-b"]),
            (subdomain, &["a.b", "a", "x-1.y"]),
            (subdomain_with_underscores, &["a.b", "_tcp.a_b", "a"]),
            (label_1035, &["a1", "a-b"]),
            (path_segment, &["a:b:C", "..."]),
            (qualified, &["a", "example.com/My_Name", "A.b-c"]),
            (label_value, &["", "a_b", "1"]),
            (port_name, &["http", "a-1"]),
            (percent, &["0%", "150%"]),
            (env, &["A", "a b", "1x"]),
            (env_identifier, &["A", "a.b-c_1", "-", ".a"]),
            (config_key, &["a", ".a", "A_b-c"]),
            (ip, &["10.0.0.1", "::1"]),
            (cidr, &["10.0.0.0/8", "::/0"]),
            (wildcard_subdomain, &["*.a.b"]),
        ];
        for (check, names) in good {
            for name in *names {
                assert_eq!(check(name), Vec::<String>::new(), "{name}");
            }
        }
    }

    #[test]
    fn bad_names_have_problems() {
        let bad: &[NameCase] = &[
            (label, &["", "A", "a.b", "-a", "a-"]),
            (subdomain, &["", "a..b", "a_b", ".a"]),
            (subdomain_with_underscores, &["", "a..b", "a_", "__a", "_", "A", "_-a"]),
            (label_1035, &["1a", ""]),
            (path_segment, &[".", "..", "a/b", "a%"]),
            (qualified, &["", "/a", "a/", "a/b/c", "-a", "A/b"]),
            (label_value, &["-", "a b"]),
            (port_name, &["", "1", "a--b", "-a", "sixteen-letters-x", "A"]),
            (percent, &["%", "1", "a%", "1.5%"]),
            (env, &["", "a=b", "é"]),
            (env_identifier, &["", "a b", "1x", ".", "..", "..a"]),
            (config_key, &["", ".", "..", "..a", "a b"]),
            (ip, &["1.2.3", "x", "010.0.0.1"]),
            (cidr, &["10.0.0.0", "10.0.0.0/33", "x/1", "10.0.0.0/"]),
            (wildcard_subdomain, &["*", "a.b", "*.*.b"]),
        ];
        for (check, names) in bad {
            for name in *names {
                assert!(!check(name).is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn smaller_ranges_inside_another_are_subsets() {
        let table = [
            ("10.1.0.0/16", "10.0.0.0/8", true),
            ("10.0.0.0/8", "10.0.0.0/8", false),
            ("10.0.0.0/7", "10.0.0.0/8", false),
            ("11.0.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "0.0.0.0/0", true),
            ("fd00::/64", "fd00::/8", true),
            ("fd00::/64", "10.0.0.0/8", false),
        ];
        for (inner, outer, expected) in table {
            assert_eq!(is_strict_subset(inner, outer), expected, "{inner} in {outer}");
        }
    }
}
