//! The requests of a claim, with the classes that they name.
//!
//! Never: looks at a device. Start reading at [`ClaimRequests::read`].

use super::capacity::{self, CapacityAmounts};
use crate::kinds::device::selector::DeviceSelection;
use crate::object::Object;
use crate::world::{World, devices};
use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceClassSpec, DeviceConstraint, DeviceRequest, DeviceSelector,
    DeviceToleration, ResourceClaim, ResourceClaimSpec,
};
use serde::Deserialize;
use std::sync::Arc;

/// The requests of one claim.
pub struct ClaimRequests {
    /// `NAMESPACE/NAME`.
    pub claim: String,
    /// Identifies this state of the claim: its uid and its revision.
    pub identity: String,
    /// The spec.
    pub spec: ResourceClaimSpec,
    /// The alternatives of each request; the first possible one is taken.
    pub requests: Vec<Arc<Vec<WantedDevices>>>,
}

/// A number of devices of a class.
pub struct WantedDevices {
    /// `REQUEST`, or `REQUEST/SUBREQUEST`.
    pub name: String,
    /// The name of the class.
    pub class_name: String,
    /// The class.
    pub class: DeviceClassSpec,
    /// The selectors that a device has to meet, those of the class first, with their places for errors.
    pub selectors: Vec<(String, DeviceSelection)>,
    /// The number of devices; `None` for all that there are.
    pub count: Option<usize>,
    /// Whether it can have devices that other claims have, as administrators can.
    pub admin_access: Option<bool>,
    /// The taints that it tolerates.
    pub tolerations: Vec<DeviceToleration>,
    /// The requested amounts of capacities.
    pub capacity: CapacityAmounts,
}

impl ClaimRequests {
    /// Reads the requests of a claim; the error says why no node can meet them.
    pub fn read(world: &World, claim: &Object) -> Result<ClaimRequests, String> {
        let path = format!("{}/{}", claim.namespace(), claim.name());
        let read = ResourceClaim::deserialize(&claim.0);
        let spec = read.map_err(|error| format!("resource claim {path}: {error}"))?.spec;
        let all = spec.devices.as_ref().and_then(|devices| devices.requests.as_ref()).into_iter().flatten();
        let requests =
            all.map(|request| read_request(world, &path, request).map(Arc::new)).collect::<Result<_, _>>()?;
        let identity = format!("{} {}", claim.uid(), claim.text(&["metadata", "resourceVersion"]).unwrap_or_default());
        Ok(ClaimRequests { claim: path, identity, spec, requests })
    }

    /// Returns the same claim with the requests of these names only.
    pub fn with_requests(&self, is_wanted: impl Fn(&str) -> bool) -> ClaimRequests {
        let is_wanted = |wanted: &&Arc<Vec<WantedDevices>>| wanted.first().is_some_and(|first| is_wanted(&first.name));
        ClaimRequests {
            claim: self.claim.clone(),
            identity: self.identity.clone(),
            spec: self.spec.clone(),
            requests: self.requests.iter().filter(is_wanted).cloned().collect(),
        }
    }

    /// Returns the constraints over several devices.
    pub fn constraints(&self) -> impl Iterator<Item = &DeviceConstraint> {
        self.spec.devices.iter().filter_map(|devices| devices.constraints.as_ref()).flatten()
    }
}

fn read_request(world: &World, claim: &str, request: &DeviceRequest) -> Result<Vec<WantedDevices>, String> {
    let mut alternatives = Vec::new();
    if let Some(exact) = &request.exactly {
        let name = request.name.clone();
        alternatives.push(WantedDevices {
            admin_access: exact.admin_access,
            ..read_wanted(
                world,
                claim,
                name,
                RequestFields {
                    class: &exact.device_class_name,
                    mode: exact.allocation_mode.as_deref(),
                    count: exact.count,
                    selectors: exact.selectors.as_deref(),
                    tolerations: exact.tolerations.as_deref(),
                    capacity: exact.capacity.as_ref(),
                },
            )?
        });
    }
    for part in request.first_available.iter().flatten() {
        let name = format!("{}/{}", request.name, part.name);
        alternatives.push(read_wanted(
            world,
            claim,
            name,
            RequestFields {
                class: &part.device_class_name,
                mode: part.allocation_mode.as_deref(),
                count: part.count,
                selectors: part.selectors.as_deref(),
                tolerations: part.tolerations.as_deref(),
                capacity: part.capacity.as_ref(),
            },
        )?);
    }
    match alternatives.is_empty() {
        true => Err(format!("request {}: unsupported request type", request.name)),
        false => Ok(alternatives),
    }
}

/// The fields that both forms of a request have.
struct RequestFields<'a> {
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    selectors: Option<&'a [DeviceSelector]>,
    tolerations: Option<&'a [DeviceToleration]>,
    capacity: Option<&'a CapacityRequirements>,
}

fn read_wanted(world: &World, claim: &str, name: String, fields: RequestFields<'_>) -> Result<WantedDevices, String> {
    let class = world.find(devices::CLASSES, "", fields.class);
    let class = class.and_then(|class| DeviceClass::deserialize(&class.body().0).ok());
    let Some(class) = class.map(|class| class.spec) else {
        return Err(format!("request {name}: device class {} does not exist", fields.class));
    };
    let mut selectors = compile_selectors(&format!("class {}", fields.class), class.selectors.as_deref())?;
    selectors.extend(compile_selectors(&format!("claim {claim}"), fields.selectors)?);
    let count = usize::try_from(fields.count.unwrap_or(1)).unwrap_or(1);
    Ok(WantedDevices {
        selectors,
        name,
        class_name: fields.class.to_owned(),
        class,
        count: (fields.mode != Some("All")).then_some(count),
        admin_access: None,
        tolerations: fields.tolerations.unwrap_or_default().to_vec(),
        capacity: capacity::read_amounts(fields.capacity.and_then(|capacity| capacity.requests.as_ref())),
    })
}

/// Compiles selectors; the error names the invalid one.
fn compile_selectors(
    place: &str,
    selectors: Option<&[DeviceSelector]>,
) -> Result<Vec<(String, DeviceSelection)>, String> {
    let expressions = selectors.unwrap_or_default().iter().filter_map(|selector| selector.cel.as_ref());
    let compiled = expressions.enumerate().map(|(number, cel)| {
        let place = format!("{place}: selector #{number}");
        let selection = DeviceSelection::compile(&cel.expression);
        selection.map_err(|why| format!("{place}: CEL compile error: {why}")).map(|selection| (place, selection))
    });
    compiled.collect()
}
