//! The resolver: threads of the gateway that answer pods' questions about names, and ask the machine's own resolver about
//! names that are none of the cluster's.
//!
//! Pods need not know of it: whatever server they ask at port 53, their shim leads the question here, as long as somebody listens.

use super::{act, routes};
use crate::network::names::{Directory, Kind, Record, Reply};
use crate::world::entrance;
use crate::world::plan::{Route, RoutePort};
use simple_dns::rdata::{A, CNAME, PTR, RData, SOA, SRV, TXT};
use simple_dns::{CLASS, Name, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, TYPE};
use simple_dns::{Packet, SimpleDnsError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Seconds for which an answer holds: Services move.
const HOLDS: u32 = 5;
/// Questions that wait for the machine's resolver at the same time; more are told to come again.
const ASKED: usize = 64;
/// How long the machine's resolver may take, each time.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is passed on.
const LONGEST: usize = 4096;

/// What the resolver and whoever feeds it share.
pub type Shared = Arc<Mutex<Directory>>;

/// Starts answering, and leads the cluster's pods here: at a port of its own, and where the machine allows it at the cluster's
/// address for names, for programs that believe only who was asked. It ends with the process.
pub fn start(state: &Path, network: u8, directory: &Shared) -> Vec<UdpSocket> {
    let places = [(Ipv4Addr::LOCALHOST, 0), (entrance::resolver(network), routes::DNS_PORT)];
    let sockets: Vec<UdpSocket> = places.into_iter().filter_map(|place| answer_at(place, directory).ok()).collect();
    let _ = sockets.first().map(|first| lead(state, first));
    sockets
}

/// Where the resolver of the cluster with this folder answers the rest of the machine; none while it does not run.
pub fn found(state: &Path, network: u8) -> Option<SocketAddrV4> {
    let usual = SocketAddrV4::new(entrance::resolver(network), routes::DNS_PORT);
    let folder = state.join(routes::FOLDER);
    let own = routes::endpoints(&folder, routes::DNS, routes::DNS_PORT, false, Ipv4Addr::LOCALHOST);
    std::iter::once(usual).chain(own).find(|place| act::is_bound_here(*place.ip(), place.port()))
}

fn answer_at(place: (Ipv4Addr, u16), directory: &Shared) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(place)?;
    let (listener, directory) = (socket.try_clone()?, directory.clone());
    std::thread::Builder::new().name("resolver".into()).spawn(move || listen(&listener, &directory))?;
    Ok(socket)
}

fn lead(state: &Path, socket: &UdpSocket) -> io::Result<()> {
    let port = RoutePort {
        name: "dns".into(),
        protocol: "UDP".into(),
        port: routes::DNS_PORT,
        node_port: None,
        is_open: false,
        sticky: false,
        is_h2: false,
        endpoints: vec![socket.local_addr()?.to_string().into()],
    };
    routes::write(state, &Route { address: routes::DNS.into(), ports: vec![port], ..Route::default() })
}

fn listen(socket: &UdpSocket, directory: &Shared) {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut bytes = [0; LONGEST];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut bytes) else { continue };
        match answer(&bytes[..length], client, directory) {
            Some(Said::Known(reply)) => drop(socket.send_to(&reply, client)),
            Some(Said::Ask(question)) => ask(socket, client, question, &asked),
            None => {}
        }
    }
}

/// What is said to a question.
enum Said {
    /// This.
    Known(Vec<u8>),
    /// The machine's resolver has to be asked.
    Ask(Forward),
}

/// A question for the machine's resolver.
struct Forward {
    id: u16,
    /// What the client asked, as it came.
    asked: Vec<u8>,
    /// Another name to ask about instead.
    alias: Option<String>,
}

/// None for what is no question.
fn answer(bytes: &[u8], client: SocketAddr, directory: &Shared) -> Option<Said> {
    let packet = Packet::parse(bytes).ok().filter(|packet| !packet.has_flags(PacketFlag::RESPONSE))?;
    let question = packet.questions.first()?;
    let IpAddr::V4(client) = client.ip() else { return None };
    let kind = match question.qtype {
        QTYPE::TYPE(TYPE::A) => Kind::A,
        QTYPE::TYPE(TYPE::SRV) => Kind::Srv,
        QTYPE::TYPE(TYPE::PTR) => Kind::Ptr,
        QTYPE::TYPE(TYPE::TXT) => Kind::Txt,
        _ => Kind::Other,
    };
    let directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
    let name = question.qname.to_string();
    let forward = |alias| Some(Said::Ask(Forward { id: packet.id(), asked: bytes.to_vec(), alias }));
    match directory.ask(&name, kind, client) {
        Reply::Elsewhere => forward(None),
        Reply::Alias(target) => match directory.ask(&target, kind, client) {
            Reply::Records(records) => known(&packet, RCODE::NoError, Some(&target), &records),
            _ => forward(Some(target)),
        },
        Reply::NoSuchName => known(&packet, RCODE::NameError, None, &[]),
        Reply::Records(records) => known(&packet, RCODE::NoError, None, &records),
    }
}

fn known(asked: &Packet, code: RCODE, alias: Option<&str>, records: &[Record]) -> Option<Said> {
    reply(asked, code, alias, records).ok().map(Said::Known)
}

fn reply(asked: &Packet, code: RCODE, alias: Option<&str>, records: &[Record]) -> Result<Vec<u8>, SimpleDnsError> {
    let question = asked.questions.first().ok_or(SimpleDnsError::InsufficientData)?;
    let mut packet = start_of_reply(asked, question, code);
    let mut owner = question.qname.clone();
    if let Some(alias) = alias {
        let target = Name::new(alias)?;
        packet.answers.push(ResourceRecord::new(owner, CLASS::IN, HOLDS, RData::CNAME(CNAME(target.clone()))));
        owner = target;
    }
    for record in records {
        let data = match record {
            Record::A(address) => RData::A(A { address: (*address).into() }),
            Record::Ptr(name) => RData::PTR(PTR(Name::new(name)?)),
            Record::Txt(words) => RData::TXT(TXT::new().with_string(words)?),
            Record::Srv(host, port, address) => {
                let target = Name::new(host)?;
                if let Some(address) = address {
                    let a = RData::A(A { address: (*address).into() });
                    packet.additional_records.push(ResourceRecord::new(target.clone(), CLASS::IN, HOLDS, a));
                }
                RData::SRV(SRV { priority: 0, weight: share(records.len()), port: *port, target })
            }
        };
        packet.answers.push(ResourceRecord::new(owner.clone(), CLASS::IN, HOLDS, data));
    }
    if packet.answers.is_empty() && code != RCODE::ServerFailure {
        packet.name_servers.push(authority()?);
    }
    packet.build_bytes_vec_compressed()
}

/// What each of so many has of a hundred (CoreDNS).
fn share(many: usize) -> u16 {
    u16::try_from(100 / many.max(1)).unwrap_or_default().max(1)
}

/// Who says that there is nothing, and for how long that may be believed: without it a client asks again each time.
fn authority() -> Result<ResourceRecord<'static>, SimpleDnsError> {
    let soa = SOA {
        mname: Name::new("ns.dns.cluster.local")?,
        rname: Name::new("hostmaster.cluster.local")?,
        serial: 1,
        refresh: 7200,
        retry: 1800,
        expire: 86400,
        minimum: HOLDS,
    };
    Ok(ResourceRecord::new(Name::new("cluster.local")?, CLASS::IN, HOLDS, RData::SOA(soa)))
}

fn start_of_reply<'a>(asked: &Packet, question: &Question<'a>, code: RCODE) -> Packet<'a> {
    let mut packet = Packet::new_reply(asked.id());
    packet.set_flags(PacketFlag::RECURSION_AVAILABLE | (PacketFlag::RECURSION_DESIRED));
    *packet.rcode_mut() = code;
    packet.questions.push(question.clone());
    packet
}

/// Asks the machine's resolver in a thread of its own, and passes its answer on.
fn ask(socket: &UdpSocket, client: SocketAddr, forward: Forward, asked: &Arc<AtomicUsize>) {
    let (Ok(socket), asked) = (socket.try_clone(), asked.clone()) else { return };
    if asked.fetch_add(1, Ordering::Relaxed) >= ASKED {
        asked.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let in_line = asked.clone();
    let pass_on = move || {
        let failed = || refused(&forward);
        if let Some(reply) = upstream(&forward).or_else(failed) {
            let _ = socket.send_to(&reply, client);
        }
        asked.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("resolver-asks".into()).spawn(pass_on).is_err() {
        in_line.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refused(forward: &Forward) -> Option<Vec<u8>> {
    reply(&Packet::parse(&forward.asked).ok()?, RCODE::ServerFailure, None, &[]).ok()
}

fn upstream(forward: &Forward) -> Option<Vec<u8>> {
    let asked = Packet::parse(&forward.asked).ok()?;
    let Some(target) = &forward.alias else { return servers().find_map(|server| from(server, &forward.asked)) };
    let first = asked.questions.first()?;
    let mut query = Packet::new_query(forward.id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    query.questions.push(Question::new(Name::new(target).ok()?, first.qtype, first.qclass, false));
    let query = query.build_bytes_vec().ok()?;
    let answered = servers().find_map(|server| from(server, &query))?;
    let answered = Packet::parse(&answered).ok()?;
    let mut packet = start_of_reply(&asked, first, answered.rcode());
    let alias = RData::CNAME(CNAME(Name::new(target).ok()?));
    packet.answers.push(ResourceRecord::new(first.qname.clone(), CLASS::IN, HOLDS, alias));
    packet.answers.extend(answered.answers);
    packet.build_bytes_vec_compressed().ok()
}

/// The servers that the machine itself asks.
fn servers() -> impl Iterator<Item = IpAddr> {
    let config = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let server = |line: &str| line.strip_prefix("nameserver")?.trim().parse().ok();
    config.lines().filter_map(server).take(3).collect::<Vec<IpAddr>>().into_iter()
}

fn from(server: IpAddr, question: &[u8]) -> Option<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((server, routes::DNS_PORT)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.send(question).ok()?;
    let mut bytes = vec![0; LONGEST];
    let length = socket.recv(&mut bytes).ok()?;
    bytes.truncate(length);
    // The number of the question is what an answer is known by.
    (bytes.get(..2) == question.get(..2)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, kind: TYPE) -> Packet<'_> {
        let mut packet = Packet::new_query(7);
        packet.questions.push(Question::new(Name::new(name).unwrap(), kind.into(), CLASS::IN.into(), false));
        packet
    }

    #[test]
    fn hosts_share_a_hundred_and_come_with_their_addresses() {
        let host = |number: u8| {
            Record::Srv(format!("db-{number}.db.shop.svc.cluster.local"), 5432, Some([127, 9, 1, number].into()))
        };
        let question = asked("_sql._tcp.db.shop.svc.cluster.local", TYPE::SRV);
        let bytes = reply(&question, RCODE::NoError, None, &[host(0), host(1), host(2)]).unwrap();
        let said = Packet::parse(&bytes).unwrap();
        let weights = said.answers.iter().map(|record| match &record.rdata {
            RData::SRV(srv) => srv.weight,
            other => panic!("{other:?}"),
        });
        assert_eq!(weights.collect::<Vec<_>>(), [33, 33, 33]);
        assert_eq!((said.additional_records.len(), said.name_servers.len()), (3, 0));
        assert_eq!((share(0), share(1), share(1000)), (100, 100, 1));
    }

    #[test]
    fn nothing_is_said_by_whoever_knows_and_may_be_remembered() {
        for code in [RCODE::NameError, RCODE::NoError] {
            let bytes = reply(&asked("no.shop.svc.cluster.local", TYPE::A), code, None, &[]).unwrap();
            let said = Packet::parse(&bytes).unwrap();
            assert_eq!((said.rcode(), said.answers.len()), (code, 0));
            assert!(matches!(&said.name_servers[..], [ResourceRecord { rdata: RData::SOA(_), .. }]), "{said:?}");
        }
    }
}
