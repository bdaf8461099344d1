//! Streams over upgraded HTTP connections: the upgrade, and the protocols after it.
//!
//! Each stream is a separate task, which ends with its client's connection. Start reading at [`begin`].

mod byte_socket;
mod channels;
mod client_message;
mod forwarding;
mod log;
mod ports;
mod session;
mod socket;
mod spdy;
mod spdy_session;
mod watch;

use super::connections::ActiveRequest;
use super::stream::AnswerStream;
use crate::client::websocket::accepted_key;
use crate::object::{Reason, Status};
use crate::serve::answer::too_many_requests;
use crate::serve::request::{UpgradeProtocol, UpgradeRequest};
use crate::serve::target::StreamTarget;
use channels::SessionChannels;
use forwarding::ForwardingCodec;
use hyper::header::{CONNECTION, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Response};
use socket::MessageSocket;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of open streams and forwarded connections, which also is at most a sixteenth of this process's descriptors.
pub const MAX_STREAMS: usize = 1024;

/// Number of channels that one byte can address.
const MAX_CHANNELS: usize = 256;

/// The subprotocol that both sides speak, and the answer that announces it.
type SwitchedProtocol = (Option<&'static str>, Response<AnswerStream>);

/// Header in which clients of SPDY name subprotocols.
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";

/// The change of protocols that the headers of a request ask for.
pub fn read_upgrade(headers: &HeaderMap) -> Option<UpgradeRequest> {
    let words = |name: HeaderName| -> Vec<String> {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|word| word.trim().to_owned()).collect()
    };
    if !words(CONNECTION).iter().any(|word| word.eq_ignore_ascii_case("upgrade")) {
        return None;
    }
    let wanted = words(UPGRADE);
    let asks_for = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name));
    if asks_for("websocket") {
        let key = headers.get(SEC_WEBSOCKET_KEY)?.to_str().ok()?.to_owned();
        let is_current = headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
        let subprotocols = words(HeaderName::from_static("sec-websocket-protocol"));
        return is_current.then_some(UpgradeRequest { protocol: UpgradeProtocol::WebSocket, subprotocols, key });
    }
    let subprotocols = words(HeaderName::from_static(STREAM_PROTOCOL));
    asks_for("SPDY/3.1").then_some(UpgradeRequest { protocol: UpgradeProtocol::Spdy, subprotocols, key: String::new() })
}

/// Answers that protocols are switched, and serves the streams on the connection.
pub fn begin(
    target: StreamTarget,
    asked: &UpgradeRequest,
    upgrade: OnUpgrade,
    streams: &Arc<Semaphore>,
    request: ActiveRequest,
) -> Result<Response<AnswerStream>, Status> {
    let (protocol, response) = switch(&target, asked)?;
    let upgrade_protocol = asked.protocol;
    let streams = streams.clone();
    let Ok(permit) = streams.clone().try_acquire_owned() else {
        return Err(too_many_requests("too many streams are open: end some of them"));
    };
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let socket = match upgrade_protocol {
            UpgradeProtocol::WebSocket => MessageSocket::web_socket(upgraded),
            UpgradeProtocol::Spdy => MessageSocket::spdy(upgraded),
        };
        match target {
            StreamTarget::Container(target) => {
                let channels = match upgrade_protocol {
                    UpgradeProtocol::WebSocket => SessionChannels::numbered(socket, protocol.unwrap_or_default()),
                    UpgradeProtocol::Spdy => match SessionChannels::streams(socket, target.streams).await {
                        Some(channels) => channels,
                        None => return,
                    },
                };
                session::serve(target, channels).await;
            }
            StreamTarget::Ports(target) => {
                // Without a name the messages are those of the channels.
                let codec = ForwardingCodec::new(protocol.unwrap_or(forwarding::CHANNELS), target.ports.clone());
                ports::serve(target, codec, socket, streams).await;
            }
            StreamTarget::Log(logs) => {
                log::serve(logs.map(|logs| *logs), socket, protocol.unwrap_or_default()).await;
            }
        }
        drop((permit, request));
    });
    Ok(response)
}

/// Chooses the subprotocol that both sides speak, and makes the answer that says so.
fn switch(target: &StreamTarget, asked: &UpgradeRequest) -> Result<SwitchedProtocol, Status> {
    let spoken = match (target, asked.protocol) {
        (StreamTarget::Container(_), UpgradeProtocol::WebSocket) => &channels::PROTOCOLS[..],
        (StreamTarget::Container(_), UpgradeProtocol::Spdy) => &channels::STREAM_PROTOCOLS[..],
        (StreamTarget::Ports(_), UpgradeProtocol::WebSocket) => {
            &[forwarding::TUNNEL, forwarding::CHANNELS, forwarding::TEXT_CHANNELS]
        }
        (StreamTarget::Ports(_), UpgradeProtocol::Spdy) => &[forwarding::STREAMS],
        (StreamTarget::Log(_), UpgradeProtocol::WebSocket) => &log::PROTOCOLS[..],
        (StreamTarget::Log(_), UpgradeProtocol::Spdy) => &[],
    };
    let found = asked.subprotocols.iter().find_map(|name| spoken.iter().find(|known| *known == name)).copied();
    let needs_none = asked.protocol == UpgradeProtocol::WebSocket && asked.subprotocols.is_empty();
    if found.is_none() && !needs_none {
        return Err(not_negotiated(asked, spoken));
    }
    if let StreamTarget::Ports(target) = target
        && asked.protocol == UpgradeProtocol::WebSocket
        && found != Some(forwarding::TUNNEL)
        && !(1..=MAX_CHANNELS / 2).contains(&target.ports.len())
    {
        return Err(Status::new(Reason::BadRequest, "query parameter \"ports\" is required"));
    }
    Ok((found, accept(asked, found)?))
}

/// Makes the answer that protocols are switched to this subprotocol.
fn accept(asked: &UpgradeRequest, subprotocol: Option<&str>) -> Result<Response<AnswerStream>, Status> {
    let response = Response::builder().status(101).header("Connection", "Upgrade");
    let response = match asked.protocol {
        UpgradeProtocol::WebSocket => {
            let response =
                response.header("Upgrade", "websocket").header("Sec-WebSocket-Accept", accepted_key(&asked.key));
            subprotocol.iter().fold(response, |response, name| response.header("Sec-WebSocket-Protocol", *name))
        }
        UpgradeProtocol::Spdy => {
            let response = response.header("Upgrade", "SPDY/3.1");
            subprotocol.iter().fold(response, |response, name| response.header(STREAM_PROTOCOL, *name))
        }
    };
    response.body(AnswerStream::Ended).map_err(|error| Status::new(Reason::InternalError, error.to_string()))
}

/// Answers that protocols are switched, and sends the events of a watch as messages. Any one subprotocol is taken: it changes nothing.
pub fn begin_watch(
    events: AnswerStream,
    is_protobuf: bool,
    asked: &UpgradeRequest,
    upgrade: OnUpgrade,
    request: ActiveRequest,
) -> Result<Response<AnswerStream>, Status> {
    if asked.subprotocols.len() > 1 {
        return Err(Status::new(Reason::BadRequest, "bad protocol"));
    }
    let response = accept(asked, asked.subprotocols.first().map(String::as_str))?;
    request.hand_over(async move {
        if let Ok(upgraded) = upgrade.await {
            watch::serve(events, is_protobuf, MessageSocket::web_socket(upgraded)).await;
        }
    });
    Ok(response)
}

/// The error when the server supports none of the subprotocols.
fn not_negotiated(asked: &UpgradeRequest, spoken: &[&str]) -> Status {
    let names = &asked.subprotocols;
    match asked.protocol {
        UpgradeProtocol::WebSocket => {
            let text = format!("unable to upgrade: none of the requested protocols {names:?} is supported: {spoken:?}");
            Status::new(Reason::BadRequest, text)
        }
        UpgradeProtocol::Spdy => {
            let (client, server) = (names.join(" "), spoken.join(" "));
            let text = format!(
                "unable to upgrade: unable to negotiate protocol: client supports [{client}], server accepts [{server}]"
            );
            Status::new(Reason::Forbidden, text)
        }
    }
}
