//! NetworkPolicies as files that shims read for each connection: one file per policy, and one per selected pod with the names of its
//! policies. They outlive the control plane. [`table`] evaluates them. A failed write has to be repeated by the caller.

use super::super::folder;
use super::tables::{self, AllowedFlow, NetworkTables};
use crate::network::policy::table::{self, Direction, PolicyFlow};
use crate::object::Key;
use crate::world::policy::{DeniedConnection, NetworkPolicyRules};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;

/// The folder of policies in a cluster's folder.
pub const FOLDER: &str = "policies";

/// First port of clients (`net.ipv4.ip_local_port_range`): a datagram from a port above is not a reply of a server.
pub const EPHEMERAL: u16 = 32_768;

/// Separator between namespace and name, which neither can contain.
const BETWEEN: char = '_';

/// The written files: the policies that select each pod, and the pods that each policy selects.
#[derive(Default)]
pub struct WrittenPolicies {
    pods: BTreeMap<Ipv4Addr, BTreeSet<String>>,
    subjects: BTreeMap<String, Vec<Ipv4Addr>>,
    /// Pods whose file is out of date.
    stale: BTreeSet<Ipv4Addr>,
}

impl WrittenPolicies {
    /// Writes the rules of a policy, or removes them for `None`.
    pub fn write(&mut self, state: &Path, policy: &Key, rules: Option<&NetworkPolicyRules>) -> io::Result<()> {
        // Files written before a failure are in force too.
        let written = self.write_all(&state.join(FOLDER), policy, rules);
        written.and(tables::renew(state))
    }

    fn write_all(&mut self, folder: &Path, policy: &Key, rules: Option<&NetworkPolicyRules>) -> io::Result<()> {
        let name = format!("{}{BETWEEN}{}", policy.namespace, policy.name);
        if let Some(rules) = rules {
            folder::private_folder(folder).map_err(io::Error::other)?;
            folder::replace(&folder.join(&name), table::text(rules).as_bytes())?;
        }
        let now = rules.map(|rules| rules.subjects.clone()).unwrap_or_default();
        let before = self.subjects.insert(name.clone(), now.clone()).unwrap_or_default();
        for address in before.iter().chain(&now).collect::<BTreeSet<_>>() {
            let policies = self.pods.entry(*address).or_default();
            let changed = if now.contains(address) { policies.insert(name.clone()) } else { policies.remove(&name) };
            if changed {
                self.stale.insert(*address);
            }
        }
        // Includes pods whose earlier write failed.
        while let Some(address) = self.stale.first().copied() {
            self.index(folder, address)?;
            self.stale.remove(&address);
        }
        if rules.is_none() {
            self.subjects.remove(&name);
            folder::remove_if_exists(&folder.join(&name))?;
        }
        Ok(())
    }

    fn index(&mut self, folder: &Path, address: Ipv4Addr) -> io::Result<()> {
        let names = self.pods.get(&address).into_iter().flatten().fold(String::new(), |text, name| text + name + "\n");
        if names.is_empty() {
            self.pods.remove(&address);
            return folder::remove_if_exists(&folder.join(address.to_string()));
        }
        folder::replace(&folder.join(address.to_string()), names.as_bytes())
    }

    /// Removes the files of an earlier control plane. Call it once all policies have been written.
    pub fn sweep(&self, state: &Path) {
        let is_known = |name: &str| {
            self.subjects.contains_key(name) || name.parse().is_ok_and(|address| self.pods.contains_key(&address))
        };
        tables::sweep(state, FOLDER, |name| !is_known(name));
    }
}

/// Whether any policy may restrict the egress of this pod.
pub fn may_restrict_egress(tables: &NetworkTables, pod: Ipv4Addr) -> bool {
    tables.text(FOLDER, pod).map_or(true, |names| !names.is_empty())
}

/// Returns why a connection is denied; `None` when it is allowed. An unreadable policy is an error, and the connection is then refused.
pub fn denial(tables: &NetworkTables, flow: &PolicyFlow) -> io::Result<Option<DeniedConnection>> {
    let known = AllowedFlow { from: flow.from, to: flow.to, is_datagram: flow.protocol == "udp" };
    if flow.from == *flow.to.ip() || tables.allows(&known) {
        return Ok(None);
    }
    for (pod, direction) in [(flow.from, Direction::Egress), (*flow.to.ip(), Direction::Ingress)] {
        let Some(policies) = table::denied(&policies_of_pod(tables, pod)?, direction, flow) else { continue };
        return Ok(Some(DeniedConnection {
            protocol: flow.protocol.to_uppercase(),
            to: flow.to.to_string(),
            is_egress: direction == Direction::Egress,
            policies: policies.iter().map(|name| name.replacen(BETWEEN, "/", 1)).collect(),
        }));
    }
    tables.note_allowed(known);
    Ok(None)
}

/// Whether a connection is allowed.
pub fn is_allowed(tables: &NetworkTables, flow: &PolicyFlow) -> bool {
    matches!(denial(tables, flow), Ok(None))
}

/// Returns the policies that select a pod, by name and text.
fn policies_of_pod(tables: &NetworkTables, pod: Ipv4Addr) -> io::Result<Vec<(String, Rc<str>)>> {
    let names = tables.text(FOLDER, pod)?;
    // A policy that was removed meanwhile has an empty text, without rules.
    names.lines().map(|name| Ok((name.to_owned(), tables.text(FOLDER, name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use std::fs;
    use std::net::SocketAddrV4;

    fn key(name: &str) -> Key {
        Key::new(Resource("networkpolicies.networking.k8s.io"), "shop", name)
    }

    fn closed(subjects: &[Ipv4Addr]) -> NetworkPolicyRules {
        NetworkPolicyRules { subjects: subjects.into(), ingress: Some(vec![]), ..NetworkPolicyRules::default() }
    }

    const ONE: Ipv4Addr = Ipv4Addr::new(127, 9, 1, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(127, 9, 1, 2);

    #[test]
    fn unreadable_policy_denies_connections() {
        let state = tempfile::tempdir().unwrap();
        let tables = NetworkTables::for_state(state.path());
        let flow = PolicyFlow { from: ONE, to: SocketAddrV4::new(OTHER, 80), protocol: "tcp" };
        assert!(is_allowed(&tables, &flow) && !may_restrict_egress(&tables, ONE), "there is no policy");
        for unreadable in [ONE, OTHER] {
            let file = state.path().join(FOLDER).join(unreadable.to_string());
            fs::create_dir_all(&file).unwrap();
            tables.refresh();
            assert!(denial(&tables, &flow).is_err() && !is_allowed(&tables, &flow));
            assert_eq!(may_restrict_egress(&tables, ONE), unreadable == ONE);
            fs::remove_dir(&file).unwrap();
        }
        assert!(is_allowed(&tables, &flow), "the error is not cached");
    }

    #[test]
    fn allowed_flow_is_cached_until_the_tables_change() {
        let state = tempfile::tempdir().unwrap();
        let tables = NetworkTables::for_state(state.path());
        let mut written = WrittenPolicies::default();
        let to = |address: Ipv4Addr| SocketAddrV4::new(address, 80);
        let asks = |from: Ipv4Addr, address: Ipv4Addr| {
            tables.refresh();
            is_allowed(&tables, &PolicyFlow { from, to: to(address), protocol: "tcp" })
        };
        written.write(state.path(), &key("p"), Some(&closed(&[OTHER]))).unwrap();
        assert_eq!((asks(ONE, OTHER), asks(OTHER, ONE)), (false, true));
        let is_remembered = |from: Ipv4Addr, address: Ipv4Addr, is_datagram: bool| {
            tables.allows(&AllowedFlow { from, to: to(address), is_datagram })
        };
        assert_eq!((is_remembered(ONE, OTHER, false), is_remembered(OTHER, ONE, false)), (false, true));
        assert!(!is_remembered(OTHER, ONE, true), "a datagram is another flow");
        written.write(state.path(), &key("p"), Some(&closed(&[ONE]))).unwrap();
        assert_eq!((asks(ONE, OTHER), asks(OTHER, ONE)), (true, false));
    }

    #[test]
    fn policies_written_before_a_failure_apply() {
        let state = tempfile::tempdir().unwrap();
        let tables = NetworkTables::for_state(state.path());
        let mut written = WrittenPolicies::default();
        written.write(state.path(), &key("p"), Some(&closed(&[ONE]))).unwrap();
        let text = || {
            tables.refresh();
            tables.text(FOLDER, "shop_p").unwrap()
        };
        let before = text();
        fs::create_dir_all(state.path().join(FOLDER).join(OTHER.to_string())).unwrap();
        let open = NetworkPolicyRules { egress: Some(vec![]), ..closed(&[ONE, OTHER]) };
        assert!(written.write(state.path(), &key("p"), Some(&open)).is_err());
        assert_ne!(text(), before, "the stamp has changed");
        let flow = PolicyFlow { from: ONE, to: SocketAddrV4::new(OTHER, 80), protocol: "tcp" };
        fs::remove_dir(state.path().join(FOLDER).join(OTHER.to_string())).unwrap();
        written.write(state.path(), &key("p"), Some(&open)).unwrap();
        tables.refresh();
        let about = tables.text(FOLDER, OTHER).unwrap();
        assert_eq!(
            (&*about, is_allowed(&tables, &flow)),
            ("shop_p\n", false),
            "the pod's file is written with the next policy"
        );
    }

    #[test]
    fn written_policies_are_read_and_swept() {
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (ONE, OTHER);
        let denied = |from: Ipv4Addr, to: Ipv4Addr| {
            let flow = PolicyFlow { from, to: SocketAddrV4::new(to, 80), protocol: "tcp" };
            let said = super::denial(&NetworkTables::for_state(state.path()), &flow).unwrap()?;
            Some((said.is_egress, said.policies.join(" ")))
        };
        let mut written = WrittenPolicies::default();
        written.write(state.path(), &key("p"), Some(&closed(&[one, other]))).unwrap();
        assert_eq!(denied(one, other), Some((false, "shop/p".into())));
        assert_eq!(denied(one, one), None, "a pod can connect to itself");
        written.write(state.path(), &key("p"), Some(&closed(&[one]))).unwrap();
        assert_eq!((denied(one, other), denied(other, one)), (None, Some((false, "shop/p".into()))));
        let mut next = WrittenPolicies::default();
        next.write(state.path(), &key("q"), Some(&closed(&[other]))).unwrap();
        next.sweep(state.path());
        assert_eq!((denied(one, other), denied(other, one)), (Some((false, "shop/q".into())), None));
        next.write(state.path(), &key("q"), None).unwrap();
        assert_eq!(fs::read_dir(state.path().join(FOLDER)).unwrap().count(), 0);
    }
}
