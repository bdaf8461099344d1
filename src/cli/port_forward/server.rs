//! Connections to a pod of a cluster behind an API server: each is carried by a WebSocket of its own.
//!
//! Knows: channel 0 has the data and channel 1 an error; the first message of each is the number of the port. A WebSocket has no end of
//! input: once the local client has closed its side, the connection stays open for answers for a limited time. Start reading at [`serve`].

use super::{Target, print_line};
use crate::apiserver::remote::{object_path, refusal};
use crate::cli::port_forward::ports::TargetPorts;
use crate::client::{ApiClient, ClientRequest, SocketSender};
use crate::kinds;
use crate::runtime::connection_slot::ConnectionSlot;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// The protocol of the channels.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// The numbers of the channels.
const DATA: u8 = 0;
const ERROR: u8 = 1;
/// Maximum number of connections at once; more wait until one has ended.
const MAX_CONNECTIONS: usize = 256;
/// Interval for checking the local client.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time without an answer after which a connection is closed whose local client has closed its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const BYTES: usize = 32 << 10;

/// Carries each connection of a listener to a port of the object's best running pod.
pub async fn serve(target: Rc<Target>, word: String, remote: u16, here: SocketAddr, listener: TcpListener) {
    let Some(client) = target.api.remote().map(|remote| remote.client().clone()) else { return };
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept().await;
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        };
        print_line(&format!("Handling connection for {}", here.port()));
        let failed = move |why: &str| {
            let _ = writeln!(io::stderr(), "an error occurred forwarding {} -> {remote}: {why}", here.port());
        };
        let Some(path) = path_of(&target, &word) else {
            failed("the pod is not running");
            continue;
        };
        while open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let (client, count) = (client.clone(), ConnectionSlot::new(&open));
        let carry = move || {
            let _count = count;
            if let Err(why) = blocking(stream).and_then(|stream| carry(&client, &path, stream)) {
                failed(&why);
            }
        };
        // Without a thread the connection ends.
        let _ = std::thread::Builder::new().name("forward".into()).spawn(carry);
    }
}

fn path_of(target: &Target, word: &str) -> Option<String> {
    let (service, pod) = (target.service().ok()?, target.running().ok()??);
    let port = TargetPorts { service: service.as_ref(), pod: &pod }.remote(word).ok()?;
    let path = object_path(&kinds::pod::KIND, "v1", (pod.namespace(), pod.name()), "portforward");
    Some(ClientRequest::get(path).query("ports", &port).path)
}

fn blocking(stream: tokio::net::TcpStream) -> Result<TcpStream, String> {
    let stream = stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream));
    stream.map_err(|error| error.to_string())
}

/// Carries one connection to its end.
fn carry(client: &ApiClient, path: &str, mut stream: TcpStream) -> Result<(), String> {
    let socket = client.open_socket(path, &[PROTOCOL]).map_err(|error| refusal(client, error).message)?;
    let (sender, input) = (socket.sender(), stream.try_clone().map_err(|error| error.to_string())?);
    let has_ended = Arc::new(AtomicBool::new(false));
    let flag = has_ended.clone();
    let send = move || {
        send_input(&sender, input);
        flag.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("forward".into()).spawn(send).map_err(|error| error.to_string())?;
    let mut first = [true; 2];
    let mut heard = Instant::now();
    let outcome = loop {
        match socket.receive(POLL_INTERVAL) {
            Ok(None) if has_ended.load(Ordering::Relaxed) && heard.elapsed() > CLOSE_TIMEOUT => break Ok(()),
            Ok(None) => {}
            Ok(Some(message)) => {
                heard = Instant::now();
                let is_first = first.get_mut(usize::from(message.channel)).is_none_or(std::mem::take);
                match message.channel {
                    _ if is_first => {}
                    DATA if stream.write_all(&message.bytes).is_err() => break Ok(()),
                    ERROR => break Err(String::from_utf8_lossy(&message.bytes).into_owned()),
                    _ => {}
                }
            }
            Err(None) => break Ok(()),
            Err(Some(error)) => break Err(error.to_string()),
        }
    };
    // Ends the thread that reads.
    let _ = stream.shutdown(Shutdown::Both);
    outcome
}

/// Sends the local client's data until it closes the connection.
fn send_input(sender: &SocketSender, mut input: TcpStream) {
    let mut buffer = vec![0; BYTES];
    while let Ok(read) = input.read(&mut buffer) {
        if read == 0 || !sender.send(DATA, &buffer[..read]) {
            return;
        }
    }
}
