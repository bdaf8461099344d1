//! Addresses and protocols in Services, Endpoints and EndpointSlices.

use super::{FieldErrors, FieldPath, names};
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

/// Joins an address and a port; IPv6 in brackets.
pub fn host_port(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Checks a destination of one address family, which may be a pod or a server on this machine.
pub fn check_family(text: &str, v4: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let fits = text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4() == v4);
    if fits {
        check_destination(text, LoopbackRule::Allowed, path, errors);
    } else if v4 {
        errors.invalid(path, text, "must be a valid IPv4 address");
    } else {
        errors.invalid(path, text, "must be a valid IPv6 address");
    }
}

/// Checks a destination address: refuses unspecified, loopback (see `loopback`), link-local and multicast addresses.
pub fn check_destination(text: &str, loopback: LoopbackRule, path: &FieldPath, errors: &mut FieldErrors) {
    let Ok(address) = text.parse::<IpAddr>() else {
        errors.each_invalid(path, text, names::ip(text));
        return;
    };
    if address.is_unspecified() {
        errors.invalid(path, text, "may not be unspecified (0.0.0.0 or ::)");
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

/// Checks that a protocol is TCP, UDP or SCTP.
pub fn check_protocol(protocol: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    match protocol.unwrap_or_default() {
        "" => errors.required(path, ""),
        "TCP" | "UDP" | "SCTP" => {}
        other => errors.unsupported(path, other, &["SCTP", "TCP", "UDP"]),
    }
}
