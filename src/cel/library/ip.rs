//! IP addresses and networks (`k8s.io/apiserver/pkg/cel/library/ip.go`, `cidr.go`).

use super::{CIDR, Function, IP, Sig, function, global, member, text};
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use std::net::IpAddr;

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("ip", &[global(&[Sig::String], IP), member(&[CIDR], IP)], |_, args| match &args[0] {
        Value::Cidr(address, _) => Ok(Value::Ip(*address)),
        other => parse_ip(text(other)?).map_or_else(fail, |address| Ok(Value::Ip(address))),
    }),
    function("isIP", &[global(&[Sig::String], Sig::Bool)], |_, args| {
        Ok(Value::Bool(parse_ip(text(&args[0])?).is_ok()))
    }),
    function("ip.isCanonical", &[global(&[Sig::String], Sig::Bool)], |_, args| {
        let text = text(&args[0])?;
        parse_ip(text).map_or_else(fail, |address| Ok(Value::Bool(address.to_string() == text)))
    }),
    function("family", &[member(&[IP], Sig::Int)], |_, args| {
        Ok(Value::Int(if address(&args[0])?.is_ipv4() { 4 } else { 6 }))
    }),
    function("isUnspecified", &[member(&[IP], Sig::Bool)], |_, args| test(args, |ip| ip.is_unspecified())),
    function("isLoopback", &[member(&[IP], Sig::Bool)], |_, args| test(args, |ip| ip.is_loopback())),
    function("isLinkLocalMulticast", &[member(&[IP], Sig::Bool)], |_, args| {
        test(args, |ip| match ip {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        })
    }),
    function("isLinkLocalUnicast", &[member(&[IP], Sig::Bool)], |_, args| test(args, is_link_local)),
    function("isGlobalUnicast", &[member(&[IP], Sig::Bool)], |_, args| {
        test(args, |ip| {
            let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            !(is_broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local(ip))
        })
    }),
    function("cidr", &[global(&[Sig::String], CIDR)], |_, args| {
        parse_cidr(text(&args[0])?).map_or_else(fail, |(address, length)| Ok(Value::Cidr(address, length)))
    }),
    function("isCIDR", &[global(&[Sig::String], Sig::Bool)], |_, args| {
        Ok(Value::Bool(parse_cidr(text(&args[0])?).is_ok()))
    }),
    function("prefixLength", &[member(&[CIDR], Sig::Int)], |_, args| Ok(Value::Int(i64::from(network(&args[0])?.1)))),
    function("masked", &[member(&[CIDR], CIDR)], |_, args| {
        let (address, length) = network(&args[0])?;
        Ok(Value::Cidr(masked(address, length), length))
    }),
    function("containsIP", &[member(&[CIDR, Sig::String], Sig::Bool), member(&[CIDR, IP], Sig::Bool)], |_, args| {
        let inner = match &args[1] {
            Value::Ip(address) => *address,
            other => match parse_ip(text(other)?) {
                Ok(address) => address,
                Err(why) => return fail(why),
            },
        };
        Ok(Value::Bool(contains_network(network(&args[0])?, (inner, if inner.is_ipv4() { 32 } else { 128 }))))
    }),
    function(
        "containsCIDR",
        &[member(&[CIDR, Sig::String], Sig::Bool), member(&[CIDR, CIDR], Sig::Bool)],
        |_, args| {
            let inner = match &args[1] {
                Value::Cidr(address, length) => (*address, *length),
                other => match parse_cidr(text(other)?) {
                    Ok(network) => network,
                    Err(why) => return fail(why),
                },
            };
            Ok(Value::Bool(contains_network(network(&args[0])?, inner)))
        },
    ),
];

fn address(value: &Value) -> Result<IpAddr, EvalError> {
    if let Value::Ip(address) = value { Ok(*address) } else { Err(EvalError::no_overload()) }
}

fn network(value: &Value) -> Result<(IpAddr, u8), EvalError> {
    if let Value::Cidr(address, length) = value { Ok((*address, *length)) } else { Err(EvalError::no_overload()) }
}

fn test<'v>(args: &[Value<'v>], holds: fn(IpAddr) -> bool) -> Evaluated<'v> {
    Ok(Value::Bool(holds(address(&args[0])?)))
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let why = "unable to parse IP";
    let parsed = text.parse::<IpAddr>().map_err(|_| {
        format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {why}")
    })?;
    if is_mapped(parsed) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(parsed)
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = |why: &str| {
        format!("network address parse error during conversion from string: netip.ParsePrefix({text:?}): {why}")
    };
    let (address, length) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
    let address: IpAddr = address.parse().map_err(|_| wrong(&format!("ParseAddr({address:?}): unable to parse IP")))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_plain = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_plain && (length.len() == 1 || !length.starts_with('0'));
    let bits = length.parse::<u8>().ok().filter(|_| is_plain).ok_or_else(|| wrong("bad bits after slash"))?;
    if bits > most {
        return Err(wrong("prefix length out of range"));
    }
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok((address, bits))
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

fn contains_network((outer, length): (IpAddr, u8), (inner, inner_length): (IpAddr, u8)) -> bool {
    outer.is_ipv4() == inner.is_ipv4() && length <= inner_length && masked(outer, length) == masked(inner, length)
}
