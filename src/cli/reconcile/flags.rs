//! Values of flags of `kloop reconcile`.

use crate::cli::manifests::input;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::time::{self, TimeError};
use crate::object::{Key, Resource, io_error_text, yaml};
use crate::runtime::capacity::MachineCapacity;
use crate::runtime::machine::choose_link_address;
use crate::world::policy::Cidr;
use crate::world::resources::NodeFields;
use std::net::{IpAddr, TcpListener};
use std::path::Path;

/// Parses a pause between restarts, and returns its seconds.
pub fn parse_pause(text: &str) -> Result<i64, TimeError> {
    let pause = time::parse_duration(text)?;
    if pause.as_secs() < 1 || pause.subsec_nanos() != 0 {
        return Err(TimeError("must be whole seconds, at least 1s".into()));
    }
    Ok(pause.as_secs())
}

/// Parses `--env`. A name without a value takes the value from this environment, and is left out if
/// there is none.
pub fn variables(texts: &[String]) -> CliResult<Vec<(String, String)>> {
    let mut found = Vec::new();
    for text in texts {
        let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
        if name.is_empty() {
            return Err(Failure::plain(format!(
                "invalid argument {text:?} for \"--env\" flag: write NAME=VALUE or NAME"
            )));
        }
        let value = value.map(str::to_owned).or_else(|| std::env::var(name).ok());
        found.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(found)
}

/// Checks the scheduler's configuration and returns it as JSON.
pub fn configuration(path: &Path) -> CliResult<String> {
    let refuse = |what: String| Failure::plain(format!("{}: {what}", path.display()));
    let bytes =
        input::read(path).map_err(|error| refuse(format!("cannot be read: {error}", error = io_error_text(error))))?;
    let text = yaml::decode_bytes(&bytes).map_err(|error| refuse(error.to_string()))?;
    let documents = yaml::documents(&text).map_err(|error| refuse(error.to_string()))?;
    let [document] = &documents[..] else {
        return Err(refuse(format!("expected one document, found {}", documents.len())));
    };
    crate::scheduler::config::profiles(&document.value).map_err(refuse)?;
    Ok(document.value.to_string())
}

/// Parses a flag's blocks of addresses.
pub fn blocks(texts: &[String]) -> CliResult<Vec<Cidr>> {
    let refused = |text: &str| {
        let what = "write a block of IPv4 addresses, as in 192.168.0.0/16";
        Failure::plain(format!("invalid argument {text:?} for \"--nodeport-addresses\" flag: {what}"))
    };
    texts.iter().map(|text| text.parse().map_err(|()| refused(text))).collect()
}

/// Gives this machine's node an address by which other machines reach it, and a place for links to them.
pub fn set_address(node: &mut MachineCapacity, address: IpAddr, context: &mut CommandContext) -> CliResult {
    node.address = address;
    if address.is_loopback() || address.is_unspecified() {
        return Err(Failure::plain(format!(
            "invalid argument \"{address}\" for \"--node-ip\" flag: write an address of this machine that other machines reach"
        )));
    }
    let cannot = |error| Failure::plain(format!("cannot listen on {address} (--node-ip): {}", io_error_text(error)));
    // An address of another machine changes nothing.
    TcpListener::bind((address, 0)).map_err(cannot)?;
    let key = Key::new(Resource("nodes"), "", &node.name);
    // Makes a new cluster first.
    let stored = context.api()?.read_view(|txn| txn.get(&key))?;
    let before = stored.and_then(|node| NodeFields::from_node(&node).link);
    node.link_address = Some(choose_link_address(address, before).map_err(cannot)?);
    Ok(())
}
