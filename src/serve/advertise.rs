//! The Endpoints and the EndpointSlice of the Service `kubernetes`, which lead to the server as long as it runs.
//!
//! Knows: both objects of one server. As in Kubernetes the server itself writes them, repairs them now and then, and takes them away when
//! it ends. Of several servers of one cluster the first is advertised; another takes its place once that one accepts no connection.
//! Never: advertises plain HTTP, because the Service's port is `https`.

use crate::apiserver::create::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, ApiResult, Transaction, WriteOptions};
use crate::controllers::kubernetesservice::{NAME, NAMESPACE, endpoint_slice, endpoints};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Time that another server has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Fields of both kinds that follow from the address.
const FIELDS: [&str; 4] = ["subsets", "addressType", "endpoints", "ports"];

/// Returns the address that pods reach a listener at: they run on the same machine.
pub fn reachable(listening: SocketAddr) -> SocketAddr {
    match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listening.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listening.port()),
        _ => listening,
    }
}

/// Writes both objects where they differ, unless they lead to another server that still answers.
pub fn advertise(api: &mut Api, address: SocketAddr) -> ApiResult<()> {
    if api.read_view(|txn| is_current(txn, address))? {
        return Ok(());
    }
    let other = api.read_view(advertised)?.filter(|other| *other != address);
    if other.is_some_and(|other| TcpStream::connect_timeout(&other, CONNECT_TIMEOUT).is_ok()) {
        return Ok(());
    }
    api.write(false, |txn| {
        objects(address).iter().try_for_each(|(kind, wanted)| match txn.get(&key(kind))? {
            None => create(txn, kind, wanted, &WriteOptions::default()).map(drop),
            Some(known) if has_address(&known, wanted) => Ok(()),
            // The address type cannot change.
            Some(known) if known.value_at(&["addressType"]) != wanted.value_at(&["addressType"]) => {
                delete(txn, kind, &key(kind), &DeleteOptions::default())?;
                create(txn, kind, wanted, &WriteOptions::default()).map(drop)
            }
            Some(mut known) => {
                for field in FIELDS {
                    if let Some(value) = wanted.value_at(&[field]) {
                        known.set(&[field], value.clone());
                    }
                }
                for (name, value) in wanted.labels() {
                    known.set(&["metadata", "labels", name], value);
                }
                update(txn, kind, &known, UpdatePart::Main, &WriteOptions::default()).map(drop)
            }
        })
    })
}

/// Removes the objects that lead to this server.
pub fn withdraw(api: &mut Api, address: SocketAddr) -> ApiResult<()> {
    api.write(false, |txn| {
        objects(address).iter().try_for_each(|(kind, wanted)| match txn.get(&key(kind))? {
            Some(known) if has_address(&known, wanted) => {
                delete(txn, kind, &key(kind), &DeleteOptions::default()).map(drop)
            }
            _ => Ok(()),
        })
    })
}

fn objects(address: SocketAddr) -> [(&'static Kind, Object); 2] {
    [(&kinds::endpoints::KIND, endpoints(address)), (&kinds::endpoint_slice::KIND, endpoint_slice(address))]
}

fn key(kind: &Kind) -> Key {
    Key::new(kind.resource, NAMESPACE, NAME)
}

fn is_current(txn: &dyn Transaction, address: SocketAddr) -> ApiResult<bool> {
    for (kind, wanted) in objects(address) {
        if !txn.get(&key(kind))?.is_some_and(|known| has_address(&known, &wanted)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The address of the server that is advertised.
fn advertised(txn: &dyn Transaction) -> ApiResult<Option<SocketAddr>> {
    let slice = txn.get(&key(&kinds::endpoint_slice::KIND))?;
    Ok(slice.and_then(|slice| {
        let ip = slice.items(&["endpoints"]).first()?["addresses"][0].as_str()?.parse().ok()?;
        let port = slice.items(&["ports"]).first()?["port"].as_u64()?;
        Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
    }))
}

fn has_address(known: &Object, wanted: &Object) -> bool {
    let has_labels = wanted.labels().all(|(name, value)| known.label(name) == Some(value));
    has_labels && FIELDS.iter().all(|field| known.value_at(&[field]) == wanted.value_at(&[field]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(api: &Api) -> Option<SocketAddr> {
        api.read_view(advertised).unwrap()
    }

    #[test]
    fn server_is_advertised_until_it_ends_and_not_over_one_that_answers() {
        let mut api = Api::in_memory("test").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let first = listener.local_addr().unwrap();
        let second: SocketAddr = "127.0.0.1:1".parse().unwrap();
        advertise(&mut api, first).unwrap();
        let revision = |api: &Api| api.read(|snapshot| snapshot.revision()).unwrap();
        let before = revision(&api);
        advertise(&mut api, first).unwrap();
        assert_eq!(revision(&api), before, "nothing is written again");
        advertise(&mut api, second).unwrap();
        withdraw(&mut api, second).unwrap();
        assert_eq!(shown(&api), Some(first), "it still answers");
        drop(listener);
        advertise(&mut api, second).unwrap();
        assert_eq!(shown(&api), Some(second));
        advertise(&mut api, "[::1]:1".parse().unwrap()).unwrap();
        assert_eq!(shown(&api), Some("[::1]:1".parse().unwrap()));
        withdraw(&mut api, "[::1]:1".parse().unwrap()).unwrap();
        assert_eq!(shown(&api), None);
    }
}
