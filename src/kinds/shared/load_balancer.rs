//! The points of ingress of a load balancer, in the statuses of Services and Ingresses.

use super::super::{FieldErrors, FieldPath};
use super::{address, names};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Checks the address of a point. Those that the old status had are accepted.
pub fn check_address(address: Option<&str>, known: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(text) = address.filter(|text| !text.is_empty() && !known.contains(text)) {
        address::check_address(text, &path.child("ip"), errors);
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
