//! `kloop state copy`: copies a cluster between a state file and etcd, both ways.
//!
//! Knows: the copy is complete or not there at all. Never: overwrites a cluster. Start reading at [`run`].

use crate::cli::{CliResult, CommandContext, Failure};
use crate::reconcile::leader;
use crate::store::{self, CLAIM_LEASE, OpenError, OpenMode, Store, StoreResult};
use std::path::{Path, PathBuf};

/// Copy the cluster's state to another place: a file, or etcd.
///
/// Each of FROM and TO is a state file or an address like etcd://host1,host2,host3/prefix. TO must not have a cluster yet; FROM
/// stays unchanged. A copy to etcd contains the objects, the keys and the settings, but no history. No control plane
/// may run meanwhile, because the copy would lack its later changes. "kloop help state" describes etcd.
#[derive(clap::Args)]
#[command(
    override_usage = "FROM TO",
    after_help = "\
# Put a cluster on etcd, for control planes on several machines
kloop state copy ~/.local/state/kloop/default/state.db etcd://host1,host2,host3/shop

# Back to one machine
kloop state copy etcd://host1,host2,host3/shop ./shop.db"
)]
pub struct Args {
    /// The state to copy.
    #[arg(value_name = "FROM", required = true)]
    from: String,
    /// The place of the copy.
    #[arg(value_name = "TO", required = true)]
    to: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let source = match store::is_etcd(&args.from) {
        true => store::prepare_replica(&args.from)?,
        false => PathBuf::from(&args.from),
    };
    let mut from = Store::open(&source, OpenMode::Existing)?;
    check_stopped(&mut from)?;
    let revision = match store::is_etcd(&args.to) {
        true => from.copy_to_etcd(&store::resolve_address(&args.to)?)?,
        false => copy_to_file(&from, Path::new(&args.to))?,
    };
    context.print_line(&format!("{} copied to {} (revision {revision})", args.from, args.to))?;
    context.print_notice(&format!("hint: kloop --state {} get all -A looks into the copy", args.to));
    Ok(())
}

fn copy_to_file(from: &Store, to: &Path) -> CliResult<u64> {
    if to.symlink_metadata().is_ok() {
        return Err(Failure::plain(format!("{} exists already: name another file", to.display())));
    }
    Ok(from.copy_to_file(to).map_err(OpenError::from)?)
}

/// Refuses to copy a cluster whose control plane runs.
fn check_stopped(from: &mut Store) -> CliResult {
    let running = |pid: u32, place: String| {
        Err(Failure::plain(format!(
            "a control plane runs{place} (pid {pid}), whose later changes the copy would lack; end it first: kloop down, or Ctrl-C in its \
             terminal"
        )))
    };
    if let Some(pid) = leader::read_leader(from.home()) {
        return running(pid, String::new());
    }
    match find_remote_leader(from).map_err(OpenError::from)? {
        Some((pid, host)) => running(pid, format!(" on the machine {host}")),
        None => Ok(()),
    }
}

/// Returns the leader on another machine, if it renews its claim.
fn find_remote_leader(from: &mut Store) -> StoreResult<Option<(u32, String)>> {
    let claim = from.read_claim()?;
    if claim.is_none() {
        return Ok(None);
    }
    std::thread::sleep(CLAIM_LEASE);
    let later = from.read_claim()?;
    let renews = !later.is_none() && later != claim;
    Ok(renews.then(|| (later.pid(), later.host())))
}
