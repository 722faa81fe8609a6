//! `events`: what happened in the last hour, and what happens.

use std::{thread, time::Duration};

use clap::{Args, builder::PossibleValuesParser};
use contract::{
    events::{Event, EventKind, StreamNotice},
    lenient::read_partly,
};
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, line},
    client::{ApiClient, MessageStream, StreamMessage, query_value},
    failure::{Failure, Result},
    output::{self, TableFormat},
    pages::PagedList,
    target::Targets,
    terminal,
};

/// Time until a stream that ended is opened again.
const PAUSE: Duration = Duration::from_millis(200);
/// The same while the control plane is away.
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// Show what happened in the last hour: proxies and zones that came and went, rejections, findings, writes
///
/// Only callers with the right to administer see who wrote something.
#[derive(Debug, Args)]
pub struct EventsCommand {
    /// Type of the resources, such as dataplane or meshtimeout, or TYPE/NAME
    #[arg(value_name = "TYPE")]
    resource: Option<String>,
    /// Name of the resource
    name: Option<String>,
    /// Mesh of the events [default: all, and what is in no mesh]
    #[arg(short, long)]
    mesh: Option<String>,
    /// Kinds of events [default: all]
    #[arg(
        long,
        value_name = "KIND",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(EventKind::ALL.map(EventKind::name)),
    )]
    kind: Vec<String>,
    /// Time of the first event, or how long ago it was, such as 10m [default: as long as events are kept]
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Keep running and show what happens, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

const ATTEMPTED: &str = "could not list events";

impl EventsCommand {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let filters = self.filters(client)?;
        if self.follow { self.follow(&filters, client) } else { self.list(&filters, client) }
    }

    /// The query, every part of which starts with `&`.
    fn filters(&self, client: &ApiClient) -> Result<String> {
        let mut mesh = self.mesh.clone();
        let mut filters = String::new();
        let mut add = |name: &str, value: &str| {
            filters.push_str(&format!("&{name}={}", query_value(value)));
        };
        if let Some(resource) = &self.resource {
            let names: Vec<String> = self.name.iter().cloned().collect();
            match Targets::read(resource, &names, mesh.as_deref().unwrap_or_default(), client)? {
                Targets::All(kind) => add("type", &kind.name),
                Targets::Named(named) => {
                    let [one] = named.as_slice() else {
                        return Err(Failure::invalid(
                            "events are about one resource, or about all of a type",
                        ));
                    };
                    add("type", &one.kind.name);
                    add("name", &one.name);
                    mesh =
                        Some(one.mesh.clone()).filter(|mesh| !mesh.is_empty() && one.kind.in_mesh).or(mesh);
                }
            }
        }
        mesh.iter().for_each(|mesh| add("mesh", mesh));
        self.kind.iter().for_each(|kind| add("kind", kind));
        self.since.iter().for_each(|since| add("since", since));
        Ok(filters)
    }

    fn list(&self, filters: &str, client: &ApiClient) -> Result<()> {
        let list = PagedList { attempted: ATTEMPTED.to_owned(), ..PagedList::of("/_events", filters) };
        let found = list.all(client)?;
        let sent = json!({ "total": found.items.len(), "items": found.items });
        let text = self.format.render(&sent, || {
            let events: Vec<Event> = found.items.iter().map(read_partly).collect();
            if events.is_empty() {
                return "Nothing happened, as far as events are kept.\n".to_owned();
            }
            let (titles, rows) = cell::grid(&COLUMNS, &events);
            output::table(&titles, rows)
        });
        Ok(terminal::data(&text)?)
    }

    /// Shows what is kept and goes on with what happens. The first attempt must succeed.
    fn follow(&self, filters: &str, client: &ApiClient) -> Result<()> {
        let since = if self.since.is_none() { "&since=1h" } else { "" };
        let path = format!("/_events?changes=false{filters}{since}");
        let mut stream = client.stream(&path, None, ATTEMPTED)?;
        loop {
            self.show_all(&mut stream)?;
            thread::sleep(PAUSE);
            stream = reopened(&path, stream.last_id.as_deref(), client);
        }
    }

    fn show_all(&self, stream: &mut MessageStream) -> Result<()> {
        // An end or an error of the connection: the stream is resumed.
        while let Ok(Some(message)) = stream.next() {
            self.show(&message)?;
        }
        Ok(())
    }

    fn show(&self, message: &StreamMessage) -> Result<()> {
        let data: Value = serde_json::from_str(&message.data).unwrap_or_default();
        match message.r#type.as_str() {
            "" => {
                let text = match self.format {
                    TableFormat::Table => followed(&read_partly(&data)),
                    TableFormat::Json => format!("{data}\n"),
                    TableFormat::Yaml => format!("---\n{}", output::yaml(&data)),
                };
                Ok(terminal::data(&text)?)
            }
            "gap" | "cut" => {
                let StreamNotice { reason } = read_partly(&data);
                terminal::warn(&line(&reason));
                Ok(())
            }
            // Of a later version.
            _ => Ok(()),
        }
    }
}

/// Opens a stream again, however long the control plane is away.
fn reopened(path: &str, last_id: Option<&str>, client: &ApiClient) -> MessageStream {
    let mut was_away = false;
    loop {
        match client.stream(path, last_id, ATTEMPTED) {
            Ok(stream) => {
                if was_away {
                    terminal::talk("the control plane is back");
                }
                return stream;
            }
            Err(failure) => {
                if !was_away {
                    terminal::warn(&format!("{failure}\nevents go on when the control plane is back"));
                }
                was_away = true;
                thread::sleep(LONG_PAUSE);
            }
        }
    }
}

const COLUMNS: [Column<Event>; 5] = [
    ("TIME", |event| time(&event.time)),
    ("EVENT", |event| event.kind.name().to_owned()),
    ("MESH", |event| line(&event.mesh)),
    ("RESOURCE", resource),
    ("MESSAGE", message),
];

fn resource(event: &Event) -> String {
    format!("{}/{}", line(&event.r#type).to_lowercase(), line(&event.name))
}

/// The sentence, with what belongs to it of the other fields.
fn message(event: &Event) -> String {
    let user = if event.user.is_empty() { String::new() } else { format!(" by {}", line(&event.user)) };
    let code = if event.code.is_empty() { String::new() } else { format!("{}: ", line(&event.code)) };
    let since =
        if event.since.is_empty() { String::new() } else { format!(" (since {})", time(&event.since)) };
    format!("{code}{}{user}{since}", line(&event.message))
}

/// To the second.
fn time(text: &str) -> String {
    match cell::time(text) {
        Some(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        None => line(text),
    }
}

/// A line of a table whose other lines are not known yet.
fn followed(event: &Event) -> String {
    let mesh = if event.mesh.is_empty() { "-".to_owned() } else { line(&event.mesh) };
    let time = time(&event.time);
    format!(
        "{time}   {:<22}   {mesh:<10}   {:<24}   {}\n",
        event.kind.name(),
        resource(event),
        message(event)
    )
}
