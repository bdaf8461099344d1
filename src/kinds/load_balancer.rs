//! The points of ingress of a load balancer, in the statuses of Services and Ingresses.

use super::{FieldErrors, FieldPath, names};
use std::net::IpAddr;

/// Checks the address of a point. Those that the old status had are accepted.
pub fn check_address(address: Option<&str>, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(address) = address.filter(|address| !address.is_empty() && !known.contains(address)) {
        errors.each_invalid(&path.child("ip"), address, names::ip(address));
    }
}

/// Checks the host name of a point.
pub fn check_host_name(name: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return };
    let path = path.child("hostname");
    errors.each_invalid(&path, name, names::subdomain(name));
    if name.parse::<IpAddr>().is_ok() {
        errors.invalid(&path, name, "must be a DNS name, not an IP address");
    }
}
