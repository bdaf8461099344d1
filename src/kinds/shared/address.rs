//! Addresses and protocols in Services, Endpoints and EndpointSlices.

use super::super::{FieldErrors, FieldPath};
use super::names;
use std::net::IpAddr;

/// Rule for addresses in 127.0.0.0/8. Kubernetes allows none; kloop's pods have addresses there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LoopbackRule {
    /// Allows all.
    Allowed,
    /// Allows pod addresses, but none of the machine's own range 127.0.0.0/16.
    OfPods,
    /// Allows none.
    Refused,
}

impl LoopbackRule {
    fn refuses(self, address: IpAddr) -> bool {
        let of_machine = |address: IpAddr| !matches!(address, IpAddr::V4(v4) if v4.octets()[1] != 0);
        match self {
            LoopbackRule::Allowed => false,
            LoopbackRule::OfPods => address.is_loopback() && of_machine(address),
            LoopbackRule::Refused => address.is_loopback(),
        }
    }
}

/// Checks a destination of one address family in a list, which may be a pod or a server on this machine.
pub fn check_family(text: &str, v4: bool, (list, index): (&FieldPath, usize), errors: &mut FieldErrors) {
    let path = list.index(index);
    let Some(address) = check_address(text, &path, errors) else { return };
    if address.is_ipv4() != v4 {
        let family = if v4 { "IPv4" } else { "IPv6" };
        errors.invalid(list, text, &format!("must be an {family} address"));
    }
    check_destination(text, LoopbackRule::Allowed, &path, errors);
}

/// Checks a destination address: refuses unspecified, loopback (see `loopback`), link-local and multicast addresses.
pub fn check_destination(text: &str, loopback: LoopbackRule, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(address) = parse_leniently(text) else {
        return errors.invalid(path, text, "must be a valid IP address");
    };
    if address.is_unspecified() {
        errors.invalid(path, text, &format!("may not be unspecified ({text})"));
    }
    if loopback.refuses(address) {
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if local {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Checks the name, the number and the protocol of a port; the name is required where there are `several`.
pub fn check_port(
    name: Option<&str>,
    several: bool,
    port: i32,
    protocol: Option<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    match name.unwrap_or_default() {
        "" if several => errors.required(&path.child("name"), ""),
        "" => {}
        name => errors.each_invalid(&path.child("name"), name, names::label(name)),
    }
    errors.each_invalid(&path.child("port"), port, names::port(port.into()));
    check_protocol(protocol, &path.child("protocol"), errors);
}

/// Checks the application protocol of a port.
pub fn check_app_protocol(protocol: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(protocol) = protocol {
        errors.each_invalid(&path.child("appProtocol"), protocol, names::qualified(protocol));
    }
}

/// Checks that a protocol is TCP, UDP or SCTP.
pub fn check_protocol(protocol: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    match protocol.unwrap_or_default() {
        "" => errors.required(path, ""),
        "TCP" | "UDP" | "SCTP" => {}
        other => errors.unsupported(path, other, &["SCTP", "TCP", "UDP"]),
    }
}

/// Checks an address of a field that accepts any notation (`validation.IsValidIPForLegacyField`). Returns a valid one.
pub fn check_address(text: &str, path: &FieldPath, errors: &mut FieldErrors) -> Option<IpAddr> {
    let Some(address) = parse_leniently(text) else {
        errors.each_invalid(path, text, names::ip(text));
        return None;
    };
    if text.parse::<IpAddr>().is_err() {
        errors.invalid(path, text, "must not have leading 0s");
        return None;
    }
    if is_mapped(address) {
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
        return None;
    }
    Some(address)
}

/// An address in the one form that Kubernetes writes (`validation.IsValidIP`).
pub fn check_canonical(text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let address = check_address(text, path, errors).map(|address| address.to_string());
    if let Some(canonical) = address.filter(|canonical| canonical != text) {
        errors.invalid(path, text, &format!("must be in canonical form ({canonical:?})"));
    }
}

/// A range in the one form that Kubernetes writes (`validation.IsValidCIDR`).
pub fn check_canonical_range(text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(canonical) = check_range(text, path, errors).filter(|canonical| canonical != text) {
        errors.invalid(path, text, &format!("must be in canonical form ({canonical:?})"));
    }
}

/// Checks a range of a field that accepts any notation (`validation.IsValidCIDRForLegacyField`). Returns the one form of a valid range.
pub fn check_range(text: &str, path: &FieldPath, errors: &mut FieldErrors) -> Option<String> {
    let parts = text.split_once('/').and_then(|(address, bits)| Some((parse_leniently(address)?, address, bits)));
    let Some((address, written, bits)) =
        parts.filter(|(address, _, bits)| names::cidr(&format!("{address}/{bits}")).is_empty())
    else {
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return None;
    };
    let problem = if written.parse::<IpAddr>().is_err() || (bits.len() > 1 && bits.starts_with('0')) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if has_host_bits(address, bits.parse().unwrap_or_default()) {
        "must not have bits set beyond the prefix length"
    } else {
        return Some(format!("{address}/{bits}"));
    };
    errors.invalid(path, text, problem);
    None
}

/// Parses as Go once did: parts of an IPv4 address may begin with zeros.
fn parse_leniently(text: &str) -> Option<IpAddr> {
    let strip = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let plain = || text.split('.').map(strip).collect::<Vec<_>>().join(".").parse().ok();
    text.parse().ok().or_else(|| if text.contains(':') { None } else { plain() })
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Whether an address has bits set beyond a prefix of this length.
fn has_host_bits(address: IpAddr, prefix: u32) -> bool {
    match address {
        IpAddr::V4(v4) => u32::MAX.checked_shr(prefix).is_some_and(|mask| u32::from(v4) & mask != 0),
        IpAddr::V6(v6) => u128::MAX.checked_shr(prefix).is_some_and(|mask| u128::from(v6) & mask != 0),
    }
}
