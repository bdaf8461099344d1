//! The status of a claim: the devices that were allocated, the pods that may use them, and the reports of drivers.
//!
//! Never: decides which devices a claim gets; the scheduler does. Start reading at [`check`].

use super::claim::RequestNames;
use super::{
    MAX_ITEMS, check_binding, check_configuration, check_items, check_label, check_pool, check_raw, check_tolerations,
    check_unique,
};
use crate::kinds::shared::selector;
use crate::kinds::{FieldErrors, FieldPath, csi_driver};
use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult,
    ResourceClaimConsumerReference, ResourceClaimStatus,
};
use std::collections::BTreeSet;

const MAX_CONSUMERS: usize = 256;
const MAX_CONDITIONS: usize = 8;
const MAX_DATA_BYTES: usize = 10 * 1024;
const MAX_ADDRESSES: usize = 16;
const MAX_INTERFACE_BYTES: usize = 256;
const MAX_HARDWARE_BYTES: usize = 128;

/// Identity of a device: driver, pool, name, and its share where several claims have the same one.
type DeviceId<'s> = (&'s str, &'s str, &'s str, Option<&'s str>);

/// A change of a claim's status.
pub struct StatusChange<'s> {
    /// The status that is written.
    pub new: &'s ResourceClaimStatus,
    /// The status before.
    pub old: &'s ResourceClaimStatus,
    /// Whether the claim is being deleted.
    pub is_deleting: bool,
    /// The requests of the claim.
    pub requests: &'s RequestNames<'s>,
}

/// Checks a change of a claim's status.
pub fn check(change: &StatusChange, path: &FieldPath, errors: &mut FieldErrors) {
    let (new, old) = (change.new, change.old);
    check_consumers(change, &path.child("reservedFor"), errors);
    let allocated: BTreeSet<DeviceId> = allocated_ids(new.allocation.as_ref()).collect();
    let devices = new.devices.as_deref().unwrap_or_default();
    for (index, device) in devices.iter().enumerate() {
        check_device(device, &allocated, &path.child("devices").index(index), errors);
    }
    check_unique(devices, |device| id_text(device_id(device)), &path.child("devices"), errors);
    let at = path.child("allocation");
    match (&new.allocation, &old.allocation) {
        (Some(new), Some(old)) => errors.immutable(&at, new, old),
        (Some(new), None) => check_allocation(new, change.requests, &at, errors),
        (None, _) => {}
    }
}

fn check_consumers(change: &StatusChange, path: &FieldPath, errors: &mut FieldErrors) {
    let list = |status: &ResourceClaimStatus| status.reserved_for.clone().unwrap_or_default();
    let (consumers, before) = (list(change.new), list(change.old));
    check_items(&consumers, MAX_CONSUMERS, path, errors, |consumer: &ResourceClaimConsumerReference, path, errors| {
        for (field, text) in [("resource", &consumer.resource), ("name", &consumer.name), ("uid", &consumer.uid)] {
            if text.is_empty() {
                errors.required(&path.child(field), "");
            }
        }
    });
    check_unique(&consumers, |consumer| consumer.uid.clone(), path, errors);
    if !consumers.is_empty() && change.new.allocation.is_none() {
        errors.forbidden(path, "may not be specified when `allocated` is not set");
    } else if change.is_deleting && consumers.iter().any(|consumer| !before.contains(consumer)) {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(path, detail);
    }
}

fn allocated_ids(allocation: Option<&AllocationResult>) -> impl Iterator<Item = DeviceId<'_>> {
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.into_iter().filter_map(|devices| devices.results.as_ref()).flatten();
    results.map(|result| (&*result.driver, &*result.pool, &*result.device, result.share_id.as_deref()))
}

fn device_id(device: &AllocatedDeviceStatus) -> DeviceId<'_> {
    (&device.driver, &device.pool, &device.device, device.share_id.as_deref())
}

/// `driver/pool/device`.
fn id_text((driver, pool, device, share): DeviceId) -> String {
    let share = share.map(|share| format!("/{share}")).unwrap_or_default();
    format!("{driver}/{pool}/{device}{share}")
}

fn check_device(
    device: &AllocatedDeviceStatus,
    allocated: &BTreeSet<DeviceId>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    csi_driver::check_name(&device.driver, &path.child("driver"), errors);
    check_pool(&device.pool, &path.child("pool"), errors);
    check_label(&device.device, &path.child("device"), errors);
    let id = device_id(device);
    if !allocated.contains(&id) {
        errors.invalid(path, id_text(id), "must be an allocated device in the claim");
    }
    let conditions = device.conditions.as_ref().map_or(0, Vec::len);
    if conditions > MAX_CONDITIONS {
        errors.too_many(&path.child("conditions"), conditions, MAX_CONDITIONS);
    }
    if let Some(data) = &device.data {
        check_raw(&data.0, MAX_DATA_BYTES, &path.child("data"), errors);
    }
    let Some(network) = &device.network_data else { return };
    let path = path.child("networkData");
    let texts = [
        ("interfaceName", &network.interface_name, MAX_INTERFACE_BYTES),
        ("hardwareAddress", &network.hardware_address, MAX_HARDWARE_BYTES),
    ];
    for (field, text, most) in texts {
        if text.as_ref().is_some_and(|text| text.len() > most) {
            errors.too_long(&path.child(field), most);
        }
    }
    let addresses = network.ips.as_deref().unwrap_or_default();
    if addresses.len() > MAX_ADDRESSES {
        errors.too_many(&path.child("ips"), addresses.len(), MAX_ADDRESSES);
    }
}

fn check_allocation(
    allocation: &AllocationResult,
    requests: &RequestNames,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(nodes) = &allocation.node_selector {
        selector::check_nodes(nodes, &path.child("nodeSelector"), errors);
    }
    let Some(devices) = &allocation.devices else { return };
    let path = path.child("devices");
    let results = devices.results.as_deref().unwrap_or_default();
    check_items(
        results,
        MAX_ITEMS,
        &path.child("results"),
        errors,
        |result: &DeviceRequestAllocationResult, path, errors| {
            requests.check(&result.request, &path.child("request"), errors);
            csi_driver::check_name(&result.driver, &path.child("driver"), errors);
            check_pool(&result.pool, &path.child("pool"), errors);
            check_label(&result.device, &path.child("device"), errors);
            let list = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
            check_binding(&list(&result.binding_conditions), &list(&result.binding_failure_conditions), path, errors);
            check_tolerations(result.tolerations.as_deref(), path, errors);
        },
    );
    let config = devices.config.as_deref().unwrap_or_default();
    let most = 2 * MAX_ITEMS;
    check_items(config, most, &path.child("config"), errors, |config: &DeviceAllocationConfiguration, path, errors| {
        match config.source.as_str() {
            "" => errors.required(&path.child("source"), ""),
            "FromClaim" | "FromClass" => {}
            other => errors.unsupported(&path.child("source"), other, &["FromClaim", "FromClass"]),
        }
        requests.check_all(config.requests.as_deref(), path, errors);
        check_configuration(config.opaque.as_ref(), path, errors);
    });
}
