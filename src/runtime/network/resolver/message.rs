//! DNS messages: the answer to a query, as CoreDNS gives it for names of the cluster, within the length that the client accepts.
//!
//! Never: touches a socket. Start reading at [`answer`].

use super::super::random::random_number;
use super::{MAX_MESSAGE_BYTES, SharedDirectory};
use crate::network::names::{DnsDirectory, DnsRecord, DnsReply, QueryType, SERVER};
use crate::object::IgnorePoison;
use simple_dns::rdata::{A, CNAME, NS, OPT, PTR, RData, SOA, SRV, TXT};
use simple_dns::{CLASS, Name, OPCODE, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE};
use simple_dns::{Packet, SimpleDnsError};
use std::net::{IpAddr, SocketAddr};
use std::sync::MutexGuard;

/// Time to live of an answer in seconds; short, because Services change.
const TTL: u32 = 5;
/// Maximum length of a datagram for a client that names none (RFC 1035).
const MIN_UDP_SIZE: usize = 512;
/// Length of the header.
const HEADER_SIZE: usize = 12;
/// Minimum length of a record: a pointer to its name, and the fixed fields.
const MIN_RECORD_SIZE: usize = 12;

/// Answer to a query.
pub enum DnsAnswer {
    /// The complete answer.
    Known(Vec<u8>),
    /// The machine's resolver has to be queried.
    Ask(ForwardedQuery),
}

/// A query for the machine's resolver.
pub struct ForwardedQuery {
    /// The client's query, unchanged.
    pub asked: Vec<u8>,
    /// Whether it asked on a connection.
    pub is_stream: bool,
    /// A chain of aliases: the query is about the last one. Empty for the client's unchanged query.
    pub aliases: Vec<String>,
}

/// Locks the directory for a lookup.
pub fn locked(directory: &SharedDirectory) -> MutexGuard<'_, DnsDirectory> {
    directory.lock().ignore_poison()
}

/// Answers a query; `None` for a message that is not a query. `completes`: whether to apply the search path to short names.
pub fn answer(
    bytes: &[u8],
    client: SocketAddr,
    directory: &SharedDirectory,
    is_stream: bool,
    completes: bool,
) -> Option<DnsAnswer> {
    // A response gets no answer, which could cause an endless exchange.
    if bytes.len() < HEADER_SIZE || bytes[2] & 0x80 != 0 {
        return None;
    }
    let Ok(packet) = Packet::parse(bytes) else { return Some(DnsAnswer::Known(unreadable(bytes))) };
    let limit = limit(&packet, is_stream);
    let only = |code| reply(&packet, code, &[], limit).ok().map(DnsAnswer::Known);
    if packet.opcode() != OPCODE::StandardQuery {
        return only(RCODE::NotImplemented);
    }
    if packet.opt().is_some_and(|opt| opt.version != 0) {
        return only(RCODE::BADVERS);
    }
    let Some(question) = packet.questions.first() else { return only(RCODE::FormatError) };
    if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
        return only(RCODE::Refused);
    }
    let IpAddr::V4(client) = client.ip() else { return None };
    let forward = |aliases| Some(DnsAnswer::Ask(ForwardedQuery { asked: bytes.to_vec(), is_stream, aliases }));
    let found = locked(directory).lookup(&question.qname.to_string(), kind(question), completes.then_some(client));
    match found {
        DnsReply::Elsewhere => forward(Vec::new()),
        DnsReply::Alias(names) => forward(names),
        DnsReply::NoSuchName => only(RCODE::NameError),
        DnsReply::Records(mut records) => {
            rotate_records(&mut records, random_number());
            reply(&packet, RCODE::NoError, &records, limit).ok().map(DnsAnswer::Known)
        }
    }
}

fn kind(question: &Question) -> QueryType {
    match question.qtype {
        QTYPE::TYPE(TYPE::A) => QueryType::A,
        QTYPE::TYPE(TYPE::AAAA) => QueryType::Aaaa,
        QTYPE::TYPE(TYPE::CNAME) => QueryType::Cname,
        QTYPE::TYPE(TYPE::SRV) => QueryType::Srv,
        QTYPE::TYPE(TYPE::PTR) => QueryType::Ptr,
        QTYPE::TYPE(TYPE::TXT) => QueryType::Txt,
        QTYPE::TYPE(TYPE::SOA) => QueryType::Soa,
        QTYPE::TYPE(TYPE::NS) => QueryType::Ns,
        _ => QueryType::Other,
    }
}

/// Returns the maximum length of an answer: the client's (RFC 6891); over TCP that of any message.
fn limit(asked: &Packet, is_stream: bool) -> usize {
    match asked.opt() {
        _ if is_stream => MAX_MESSAGE_BYTES,
        Some(opt) => usize::from(opt.udp_packet_size).max(MIN_UDP_SIZE),
        None => MIN_UDP_SIZE,
    }
}

/// Rotates the records so that each address is the first in turn, which most programs use (CoreDNS' `loadbalance`).
fn rotate_records(records: &mut [DnsRecord], chance: u64) {
    let first = records.iter().position(|record| matches!(record, DnsRecord::A(_))).unwrap_or(records.len());
    let addresses = &mut records[first..];
    if !addresses.is_empty() {
        addresses.rotate_left((chance % addresses.len() as u64) as usize);
    }
}

/// Returns a message with the length prefix of TCP.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), &message[..length.into()]].concat()
}

/// Returns the error for an unreadable message, with its id.
fn unreadable(bytes: &[u8]) -> Vec<u8> {
    let mut head = vec![0; HEADER_SIZE];
    head[..2].copy_from_slice(&bytes[..2]);
    (head[2], head[3]) = (0x80 | bytes[2] & 0x79, RCODE::FormatError as u8);
    head
}

/// Returns the answer when the machine's resolver gave none; the aliases are included (CoreDNS).
pub fn failure(forward: &ForwardedQuery) -> Option<Vec<u8>> {
    match forward.aliases.is_empty() {
        true => {
            let asked = Packet::parse(&forward.asked).ok()?;
            start_of_reply(&asked, RCODE::ServerFailure).build_bytes_vec().ok()
        }
        false => aliased(forward, None),
    }
}

/// Returns the query for the last name of a chain of aliases.
pub fn question_of_alias(forward: &ForwardedQuery) -> Option<Vec<u8>> {
    let asked = Packet::parse(&forward.asked).ok()?;
    let first = asked.questions.first()?;
    let mut query = Packet::new_query(asked.id());
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    query.questions.push(Question::new(Name::new(forward.aliases.last()?).ok()?, first.qtype, first.qclass, false));
    query.build_bytes_vec().ok()
}

/// Returns the answer for a chain of aliases, with the upstream answer for the last one. Without an upstream answer there is still no error
/// (CoreDNS).
pub fn aliased(forward: &ForwardedQuery, answered: Option<&[u8]>) -> Option<Vec<u8>> {
    let asked = Packet::parse(&forward.asked).ok()?;
    let answered = answered.and_then(|answered| Packet::parse(answered).ok());
    let mut packet = start_of_reply(&asked, RCODE::NoError);
    packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    let names: Vec<DnsRecord> = forward.aliases.iter().cloned().map(DnsRecord::Cname).collect();
    fill(&mut packet, &asked, &names).ok()?;
    if let Some(answered) = answered {
        if answered.has_flags(PacketFlag::TRUNCATION) {
            packet.set_flags(PacketFlag::TRUNCATION);
        }
        packet.answers.extend(answered.answers);
    }
    serialize_within(packet, limit(&asked, forward.is_stream)).ok()
}

fn reply(asked: &Packet, code: RCODE, records: &[DnsRecord], limit: usize) -> Result<Vec<u8>, SimpleDnsError> {
    let mut packet = start_of_reply(asked, code);
    if matches!(code, RCODE::NoError | RCODE::NameError) {
        packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
        fill(&mut packet, asked, records)?;
        if records.is_empty() {
            packet.name_servers.push(authority(asked)?);
        }
    }
    serialize_within(packet, limit)
}

/// Adds records, and the addresses of the hosts that they name.
fn fill<'a>(packet: &mut Packet<'a>, asked: &Packet<'a>, records: &'a [DnsRecord]) -> Result<(), SimpleDnsError> {
    let question = asked.questions.first().ok_or(SimpleDnsError::InsufficientData)?;
    let mut owner = question.qname.clone();
    let weight_of = weight_of(records.len());
    for record in records {
        let mut beside = |name: &Name<'a>, address: &Option<std::net::Ipv4Addr>| {
            let record = |ip: &std::net::Ipv4Addr| {
                ResourceRecord::new(name.clone(), CLASS::IN, TTL, RData::A(A { address: (*ip).into() }))
            };
            packet.additional_records.extend(address.iter().map(record));
        };
        let mut next = None;
        let data = match record {
            DnsRecord::A(address) => RData::A(A { address: (*address).into() }),
            DnsRecord::Ptr(name) => RData::PTR(PTR(Name::new(name)?)),
            DnsRecord::Txt(words) => RData::TXT(TXT::new().with_string(words)?),
            DnsRecord::Srv(host, port, address) => {
                let target = Name::new(host)?;
                beside(&target, address);
                RData::SRV(SRV { priority: 0, weight: weight_of, port: *port, target })
            }
            DnsRecord::Cname(name) => {
                let target = Name::new(name)?;
                next = Some(target.clone());
                RData::CNAME(CNAME(target))
            }
            DnsRecord::Soa => {
                packet.answers.push(authority(asked)?);
                continue;
            }
            DnsRecord::Ns(name, address) => {
                let name = Name::new(name)?;
                beside(&name, address);
                RData::NS(NS(name))
            }
        };
        packet.answers.push(ResourceRecord::new(owner.clone(), CLASS::IN, TTL, data));
        owner = next.unwrap_or(owner);
    }
    Ok(())
}

/// Weight of each of `many` records, in percent (CoreDNS).
fn weight_of(many: usize) -> u16 {
    u16::try_from(100 / many.max(1)).unwrap_or_default().max(1)
}

/// SOA record for negative answers, with their time to live; without it a client repeats the query each time.
fn authority(asked: &Packet) -> Result<ResourceRecord<'static>, SimpleDnsError> {
    let name = asked.questions.first().map(|question| question.qname.to_string().to_ascii_lowercase());
    let is_reverse = name.is_some_and(|name| name.ends_with("in-addr.arpa"));
    let soa = SOA {
        mname: Name::new(SERVER)?,
        rname: Name::new("hostmaster.cluster.local")?,
        serial: 1,
        refresh: 7200,
        retry: 1800,
        expire: 86400,
        minimum: TTL,
    };
    let zone = Name::new(if is_reverse { "in-addr.arpa" } else { "cluster.local" })?;
    Ok(ResourceRecord::new(zone, CLASS::IN, TTL, RData::SOA(soa)))
}

fn start_of_reply<'a>(asked: &Packet<'a>, code: RCODE) -> Packet<'a> {
    let mut packet = Packet::new_reply(asked.id());
    *packet.opcode_mut() = asked.opcode();
    packet.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if asked.has_flags(PacketFlag::RECURSION_DESIRED) {
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    *packet.rcode_mut() = code;
    packet.questions.extend(asked.questions.first().cloned());
    // A query with EDNS gets an answer with EDNS (RFC 6891).
    let opt = |opt: &OPT| OPT { opt_codes: Vec::new(), udp_packet_size: opt.udp_packet_size, version: 0 };
    *packet.opt_mut() = asked.opt().map(opt);
    packet
}

/// Serializes a message within a length. Drops additional records first, then as many answers as necessary; the truncation flag then asks
/// the client to use TCP (RFC 2181, section 9).
fn serialize_within(mut packet: Packet, limit: usize) -> Result<Vec<u8>, SimpleDnsError> {
    let is_short = packet.answers.len() + packet.additional_records.len() <= limit / MIN_RECORD_SIZE;
    for is_bare in [false, true] {
        if is_bare {
            packet.additional_records.clear();
        }
        if is_short || packet.answers.len() <= limit / MIN_RECORD_SIZE {
            let bytes = packet.build_bytes_vec_compressed()?;
            if bytes.len() <= limit {
                return Ok(bytes);
            }
        }
    }
    packet.set_flags(PacketFlag::TRUNCATION);
    let all = std::mem::take(&mut packet.answers);
    let (mut low, mut high) = (0, all.len().min(limit / MIN_RECORD_SIZE));
    while low < high {
        let middle = (low + high).div_ceil(2);
        packet.answers = all[..middle].to_vec();
        match packet.build_bytes_vec_compressed()?.len() <= limit {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    packet.answers = all[..low].to_vec();
    packet.build_bytes_vec_compressed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn asked(name: &str, kind: TYPE) -> Packet<'_> {
        let mut packet = Packet::new_query(7);
        packet.questions.push(Question::new(Name::new(name).unwrap(), kind.into(), CLASS::IN.into(), false));
        packet
    }

    fn with_size(mut packet: Packet, size: u16, version: u8) -> Packet {
        *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: size, version });
        packet
    }

    fn addresses(count: u32) -> Vec<DnsRecord> {
        (1..=count).map(|number| DnsRecord::A(Ipv4Addr::from(0x7f09_0100 + number))).collect()
    }

    #[test]
    fn srv_records_share_the_weight_and_include_addresses() {
        let host = |number: u8| {
            DnsRecord::Srv(format!("db-{number}.db.shop.svc.cluster.local"), 5432, Some([127, 9, 1, number].into()))
        };
        let question = asked("_sql._tcp.db.shop.svc.cluster.local", TYPE::SRV);
        let bytes = reply(&question, RCODE::NoError, &[host(0), host(1), host(2)], 512).unwrap();
        let said = Packet::parse(&bytes).unwrap();
        let weights = said.answers.iter().map(|record| match &record.rdata {
            RData::SRV(srv) => srv.weight,
            other => panic!("{other:?}"),
        });
        assert_eq!(weights.collect::<Vec<_>>(), [33, 33, 33]);
        assert_eq!((said.additional_records.len(), said.name_servers.len()), (3, 0));
        assert_eq!((weight_of(0), weight_of(1), weight_of(1000)), (100, 100, 1));
        // The additional addresses are dropped before a host is.
        let bytes = reply(&question, RCODE::NoError, &[host(0), host(1), host(2)], 250).unwrap();
        let said = Packet::parse(&bytes).unwrap();
        assert_eq!((said.answers.len(), said.additional_records.len()), (3, 0));
        assert!(!said.has_flags(PacketFlag::TRUNCATION));
    }

    #[test]
    fn negative_answer_is_authoritative_and_cacheable() {
        for code in [RCODE::NameError, RCODE::NoError] {
            let bytes = reply(&asked("no.shop.svc.cluster.local", TYPE::A), code, &[], 512).unwrap();
            let said = Packet::parse(&bytes).unwrap();
            assert_eq!((said.rcode(), said.answers.len()), (code, 0));
            assert!(said.has_flags(PacketFlag::AUTHORITATIVE_ANSWER));
            assert!(matches!(&said.name_servers[..], [ResourceRecord { rdata: RData::SOA(_), .. }]), "{said:?}");
        }
    }

    #[test]
    fn answer_fits_the_size_of_the_client() {
        let plain = || asked("db.shop.svc.cluster.local", TYPE::A);
        let records = addresses(1000);
        let table = [
            (plain(), false, 512),
            (with_size(plain(), 100, 0), false, 512),
            (with_size(plain(), 1232, 0), false, 1232),
            (with_size(plain(), 65_535, 0), false, 65_535),
            (plain(), true, 65_535),
        ];
        for (question, is_stream, expected) in table {
            let limit = limit(&question, is_stream);
            assert_eq!(limit, expected);
            let bytes = reply(&question, RCODE::NoError, &records, limit).unwrap();
            let said = Packet::parse(&bytes).unwrap();
            assert!(bytes.len() <= limit && bytes.len() + 16 > limit.min(16_000), "{} of {limit}", bytes.len());
            let is_whole = limit > 16_100;
            assert_eq!(said.has_flags(PacketFlag::TRUNCATION), !is_whole);
            assert_eq!(said.answers.len() == 1000, is_whole);
            let size = |packet: &Packet| packet.opt().map(|opt| opt.udp_packet_size);
            assert_eq!(size(&said), size(&question), "the client's size is returned");
        }
        let bytes = reply(&plain(), RCODE::NoError, &addresses(5000), MAX_MESSAGE_BYTES).unwrap();
        let said = Packet::parse(&bytes).unwrap();
        assert!(said.has_flags(PacketFlag::TRUNCATION) && said.answers.len() > 4000, "{}", said.answers.len());
    }

    #[test]
    fn foreign_question_is_refused() {
        let shared = SharedDirectory::default();
        let code = |bytes: &[u8]| {
            let client = (Ipv4Addr::LOCALHOST, 5353).into();
            match answer(bytes, client, &shared, false, true) {
                Some(DnsAnswer::Known(reply)) => Some(Packet::parse(&reply).unwrap().rcode()),
                Some(DnsAnswer::Ask(_)) => Some(RCODE::NoError),
                None => None,
            }
        };
        let query = |packet: Packet| packet.build_bytes_vec().unwrap();
        let mut chaos = asked("version.bind", TYPE::TXT);
        chaos.questions[0].qclass = CLASS::CH.into();
        let mut other = asked("cluster.local", TYPE::A);
        *other.opcode_mut() = OPCODE::ServerStatusRequest;
        let mut torn = query(asked("web.shop.svc.cluster.local", TYPE::A));
        torn.truncate(20);
        let mut reply = query(asked("cluster.local", TYPE::A));
        reply[2] |= 0x80;
        let table = [
            (query(asked("example.com", TYPE::A)), Some(RCODE::NoError)),
            (query(asked("no.cluster.local", TYPE::A)), Some(RCODE::NameError)),
            (query(with_size(asked("cluster.local", TYPE::A), 4096, 1)), Some(RCODE::BADVERS)),
            (query(Packet::new_query(1)), Some(RCODE::FormatError)),
            (query(chaos), Some(RCODE::Refused)),
            (query(other), Some(RCODE::NotImplemented)),
            (torn, Some(RCODE::FormatError)),
            (reply, None),
            (vec![1; 5], None),
            (Vec::new(), None),
        ];
        for (bytes, expected) in table {
            assert_eq!(code(&bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn alias_is_answered_even_when_its_target_is_unknown() {
        let question = asked("out.shop.svc.cluster.local", TYPE::A).build_bytes_vec().unwrap();
        let forward = ForwardedQuery { asked: question, is_stream: false, aliases: vec!["example.com".into()] };
        let query = question_of_alias(&forward).unwrap();
        assert_eq!(Packet::parse(&query).unwrap().questions[0].qname.to_string(), "example.com");
        let mut missing = Packet::new_reply(7);
        *missing.rcode_mut() = RCODE::NameError;
        let mut there = Packet::new_reply(7);
        let a = RData::A(A { address: 1 });
        there.answers.push(ResourceRecord::new(Name::new("example.com").unwrap(), CLASS::IN, 60, a));
        for (answered, expected) in [(None, 1), (Some(missing), 1), (Some(there), 2)] {
            let answered = answered.map(|packet| packet.build_bytes_vec().unwrap());
            let bytes = aliased(&forward, answered.as_deref()).unwrap();
            let said = Packet::parse(&bytes).unwrap();
            assert_eq!((said.rcode(), said.answers.len()), (RCODE::NoError, expected));
            assert!(matches!(&said.answers[0].rdata, RData::CNAME(name) if name.0.to_string() == "example.com"));
        }
    }

    #[test]
    fn every_address_is_first_in_turn() {
        let firsts: std::collections::BTreeSet<Ipv4Addr> = (0..3)
            .map(|chance| {
                let mut records = vec![DnsRecord::Cname("db".into())];
                records.extend(addresses(3));
                rotate_records(&mut records, chance);
                assert_eq!(records[0], DnsRecord::Cname("db".into()));
                let DnsRecord::A(first) = records[1] else { panic!() };
                first
            })
            .collect();
        assert_eq!(firsts.len(), 3);
    }
}
