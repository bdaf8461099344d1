//! Opens the machine of a control plane.
//!
//! Start reading at [`open_machine`].

use super::node::MissingCapability;
use super::retry::{is_full, retry_until_writable};
use super::settings::ControlSettings;
use super::{node, node_lease};
use crate::apiserver::Api;
use crate::runtime;
use crate::runtime::machine::Machine;
use crate::world::Report;
use anyhow::Context;
use std::path::Path;

/// The program that is run as a shim.
pub fn shim_program(settings: &ControlSettings) -> &Path {
    settings.shim.as_deref().unwrap_or(Path::new(runtime::THIS))
}

/// Registers this machine as a node, and opens it; `None` without a node. It sends its reports to a function.
pub fn open_machine(
    api: &mut Api,
    epoch: u64,
    settings: &ControlSettings,
    missing: &[&MissingCapability],
    report: impl Fn(Report) + Clone + Send + Sync + 'static,
) -> anyhow::Result<Option<Machine>> {
    let Some(capacity) = &settings.node else { return Ok(None) };
    node_lease::claim_node(api, capacity)?;
    retry_until_writable(|| Ok(node::register(api, capacity, missing)?))
        .context("cannot register this machine as a node")?;
    let open = || {
        let (dir, environment, report) = (api.store().home(), settings.environment.clone(), Box::new(report.clone()));
        let opened = Machine::open_with(dir, epoch, shim_program(settings), environment, report);
        // A further attempt can write its files with a part of the reserve.
        opened.inspect_err(|error| _ = is_full(error) && api.store().release_small_part())
    };
    retry_until_writable(open).map(Some)
}
