//! Formats of strings in schemas (kube-openapi/pkg/validation/strfmt; apiextensions-apiserver/pkg/apiserver/validation/formats.go).
//!
//! Start reading at [`has_format`].

use super::pattern;
use crate::cel::foreign::url;
use crate::object::time::{self, is_date};
use std::net::{IpAddr, Ipv4Addr};

const UUID: &str = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
const UUID3: &str = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
const UUID4: &str = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
const UUID5: &str = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
const CREDIT_CARD: &str =
    r"^(4\d{12}(\d{3})?|5[1-5]\d{14}|6(011|5\d\d)\d{12}|3[47]\d{13}|3(0[0-5]|[68]\d)\d{11}|(2131|1800|35\d{3})\d{11})$";
const SOCIAL_SECURITY_NUMBER: &str = r"^\d{3}[- ]\d{2}[- ]\d{4}$";
const HEX_COLOUR: &str = "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
const RGB_COLOUR: &str =
    r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*(,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*){2}\)$";
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
const TIME_OF_DAY: &str = r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d{2}:\d{2})$";
const HOSTNAME_LETTERS: &str = r"^[a-zA-Z0-9\p{S}\p{L}]*$";
const DOMAIN_LETTERS: &str = r"^\p{L}*$";
const SHORT_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const LONG_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// Returns the patterns by which a format is checked, so that they can be compiled before.
pub fn patterns(format: &str) -> &'static [&'static str] {
    match normalize(format).as_str() {
        "uuid" => &[UUID],
        "uuid3" => &[UUID3],
        "uuid4" => &[UUID4],
        "uuid5" => &[UUID5],
        "creditcard" => &[CREDIT_CARD],
        "ssn" => &[SOCIAL_SECURITY_NUMBER],
        "hexcolor" => &[HEX_COLOUR],
        "rgbcolor" => &[RGB_COLOUR],
        "byte" => &[BASE64],
        "datetime" => &[TIME_OF_DAY],
        "hostname" => &[HOSTNAME_LETTERS, DOMAIN_LETTERS],
        "k8sshortname" => &[SHORT_NAME],
        "k8slongname" => &[LONG_NAME],
        _ => &[],
    }
}

/// Whether a text has a format. Formats unknown to Kubernetes are not checked.
pub fn has_format(format: &str, text: &str) -> bool {
    match normalize(format).as_str() {
        "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => time::parse_duration_in_words(text).is_some(),
        "ipv4" => parse_address(text).is_some() && text.contains('.'),
        "ipv6" => parse_address(text).is_some() && text.contains(':'),
        "cidr" => is_cidr(text),
        "mac" => is_mac_address(text),
        "uri" => url::parse(text).is_ok(),
        "email" => is_email_address(text),
        "hostname" => is_hostname(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "k8sshortname" => text.len() <= 63 && pattern::matches(SHORT_NAME, text),
        "k8slongname" => text.len() <= 253 && pattern::matches(LONG_NAME, text),
        _ => patterns(format).iter().all(|pattern| pattern::matches(pattern, text)),
    }
}

/// Whether Kubernetes knows a format for values of a type; an empty type means an undeclared one.
pub fn is_known(declared: &str, format: &str) -> bool {
    const PARSED_FORMATS: [&str; 12] =
        ["date", "duration", "ipv4", "ipv6", "cidr", "mac", "uri", "email", "isbn", "isbn10", "isbn13", "bsonobjectid"];
    match declared {
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        "" | "string" => {
            let name = normalize(format);
            name == "password" || PARSED_FORMATS.contains(&name.as_str()) || !patterns(format).is_empty()
        }
        _ => false,
    }
}

/// Formats are the same with and without dashes.
fn normalize(format: &str) -> String {
    format.replace('-', "")
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut parts = text.split('t');
    parts.next().is_some_and(is_date) && parts.next().is_some_and(|rest| pattern::matches(TIME_OF_DAY, rest))
}

/// Parses an IP address, whose parts may have leading zeros as before Go 1.17.
fn parse_address(text: &str) -> Option<IpAddr> {
    let (head, v4) = text.rsplit_once(':').map_or(("", text), |(head, last)| (&text[..=head.len()], last));
    let parts: Option<Vec<String>> = v4.split('.').map(|part| Some(part.parse::<u8>().ok()?.to_string())).collect();
    let plain = parts.filter(|parts| parts.len() == 4).map(|parts| format!("{head}{}", parts.join(".")));
    plain.as_deref().unwrap_or(text).parse().ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match parse_address(address) {
        Some(IpAddr::V4(_)) => Ipv4Addr::BITS,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// Whether Go's `net.ParseMAC` reads a text: 6, 8 or 20 bytes, in groups of one byte or two.
fn is_mac_address(text: &str) -> bool {
    let (separator, digits) = match text.find([':', '-', '.']).map(|at| &text[at..=at]) {
        Some(".") => (".", 4),
        Some(separator) => (separator, 2),
        None => return false,
    };
    let is_group = |group: &str| group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes = text.split(separator).count() * digits / 2;
    text.split(separator).all(is_group) && matches!(bytes, 6 | 8 | 20)
}

/// Whether a text is an address as Go's `net/mail.ParseAddress` reads it: `ann@example.com` or `Ann <ann@example.com>`.
fn is_email_address(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>').and_then(|head| head.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    (is_quoted || is_dotted_atom(local)) && (is_literal.is_some() || is_dotted_atom(domain))
}

/// Atoms that are joined by dots (RFC 5322, 3.2.3).
fn is_dotted_atom(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_letter))
}

/// Whether a text is a hostname: one label with at most one dash, behind its first character; or several, of which the last has letters
/// only.
fn is_hostname(text: &str) -> bool {
    let is_plain = |label: &str| pattern::matches(HOSTNAME_LETTERS, label);
    if text.len() > 255 || text.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return false;
    }
    let Some((labels, top)) = text.rsplit_once('.') else {
        let mut rest = text.chars();
        let first = rest.next().map(String::from).unwrap_or_default();
        return is_plain(&first) && is_plain(rest.as_str().strip_prefix('-').unwrap_or(rest.as_str()));
    };
    let is_label = |label: &str| !label.starts_with('-') && !label.ends_with('-') && is_plain(&label.replace('-', ""));
    labels.split('.').all(is_label) && top.chars().count() >= 2 && pattern::matches(DOMAIN_LETTERS, top)
}

/// The digits of a number without blanks and dashes; `None` if it has other characters. Only the last may be an X, which means ten.
fn read_isbn(text: &str) -> Option<Vec<u32>> {
    let kept: Vec<char> = text.chars().filter(|c| !c.is_ascii_whitespace() && *c != '-').collect();
    let last = kept.len().checked_sub(1)?;
    let digit = |(at, c): (usize, &char)| c.to_digit(10).or_else(|| (at == last && *c == 'X').then_some(10));
    kept.iter().enumerate().map(digit).collect()
}

fn is_isbn10(text: &str) -> bool {
    let sum = |digits: &[u32]| digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>();
    read_isbn(text).is_some_and(|digits| digits.len() == 10 && sum(&digits) % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let sum =
        |digits: &[u32]| digits.iter().zip([1, 3].iter().cycle()).map(|(digit, weight)| digit * weight).sum::<u32>();
    read_isbn(text).is_some_and(|digits| digits.len() == 13 && !digits.contains(&10) && sum(&digits) % 10 == 0)
}

/// Whether a text has the digits of a card's number, whose checksum is right (Luhn).
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let weigh = |(at, digit): (usize, u32)| if at % 2 == 1 { digit * 2 / 10 + digit * 2 % 10 } else { digit };
    let sum: u32 = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate().map(weigh).sum();
    pattern::matches(CREDIT_CARD, &digits) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_kubernetes_accepts() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2020-01-01T00:00:59Z", "2020-01-01t10:00:00.5+01:00"],
                &["2020-01-01 00:00:00Z", "2020-01-01T00:00:60Z", "2020-13-01T00:00:00Z", "zz"],
            ),
            ("date", &["2020-02-29"], &["2021-02-29", "2020-2-9"]),
            ("duration", &["1h", "5 days", "1w", "2 MINUTES 3s", "1d"], &["", "1x", "days"]),
            ("ipv4", &["1.2.3.4", "010.1.1.1"], &["1.2.3", "::1", "256.1.1.1"]),
            ("ipv6", &["::1", "::ffff:1.2.3.4"], &["1.2.3.4", ":::"]),
            ("cidr", &["10.0.0.0/8", "fd00::/64"], &["1.2.3.4", "1.2.3.4/33", "1.2.3.4/+8"]),
            (
                "mac",
                &["01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-ab-cd-ef"],
                &["q", "01:23", "01:23-45:67:89:ab"],
            ),
            ("uri", &["https://a.b/c", "/a"], &[":bad", "a/b"]),
            ("email", &["a@b.c", "Ann <a@b>", "\"a b\"@c"], &["a b@c", "a@b@c", "a@", "@b", "a..b@c"]),
            ("hostname", &["a", "a-b", "1.example.com", "é.london"], &["-a-", "a-b-c", "a..com", "a.c", "a.b1", ""]),
            ("isbn10", &["0321751043", "0-321-75104-3"], &["0321751044", "978-0321751041"]),
            ("isbn", &["0321751043", "978-0321751041"], &["1"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111111111111112", "1"]),
            ("ssn", &["123-45-6789"], &["123456789", "1"]),
            ("hexcolor", &["#FFF", "0a0b0c"], &["#ffff", "red"]),
            ("rgbcolor", &["rgb(255, 0,1)"], &["rgb(256,0,0)", "rgb(0,0)"]),
            ("byte", &["YQ==", "YWJj"], &["!", "", "YQ="]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000", "1"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77bcf86cd79943901"]),
            ("k8s-short-name", &["a-1"], &["-a", "A", "a.b"]),
            ("k8s-long-name", &["a.b-1"], &["a..b", "A.b"]),
            ("password", &["", "x"], &[]),
            ("unknown", &["anything"], &[]),
        ];
        for (format, good, bad) in cases {
            good.iter().for_each(|text| assert!(has_format(format, text), "{text:?} is a {format}"));
            bad.iter().for_each(|text| assert!(!has_format(format, text), "{text:?} is not a {format}"));
            assert_eq!(is_known("string", format), *format != "unknown", "{format}");
        }
        assert!(is_known("integer", "int32") && !is_known("integer", "int16") && !is_known("boolean", "date"));
    }
}
