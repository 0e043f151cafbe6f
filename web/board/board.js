// board.js - reads /backends, /explain and /metrics each second and draws them. It changes
// nothing: the proxy refuses requests of web pages that would.
"use strict";

const EVERY_MS = 1000, KEPT = 300, SHOWN_DECISIONS = 15;
const WHY = {
    most_room: "the most headroom", two_choices: "more room of two (reports are old)",
    least_sessions: "fewest sessions for its weight (no reports)",
    weighted_random: "by weight, at random", round_robin: "its turn",
    hash: "its key's backend", hash_next: "next on the ring, its key's is full",
    resumed: "where it was before", full: "every backend is full",
    none_up: "no backend is up",
};
const history = new Map();   // name and address -> [{sessions, capacity}]

const $ = id => document.getElementById(id);
const number = (v, digits = 0) => v == null ? "–"
    : v.toLocaleString("en", {maximumFractionDigits: digits});
const seconds = v => v == null ? "never" : v < 60 ? number(v, 1) + " s"
    : number(v / 60) + " min";

function make(tag, className, text) {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text != null) e.textContent = text;
    return e;
}

// ---- this proxy ----

function metricsOf(text) {
    const found = {};
    for (const line of text.split("\n")) {
        const m = /^evenkeel_route_([a-z_0-9]+) (\S+)$/.exec(line);
        if (m) found[m[1]] = Number(m[2]);
    }
    return found;
}

function drawTotals(m) {
    const rows = [
        ["sessions open", m.open_sessions], ["waiting", m.waiting_sessions],
        ["begun", m.sessions_total], ["refused, no room", m.refused_total],
        ["tried elsewhere", m.retries_total],
        ["backends up", `${number(m.backends_up)} of ${number(m.backends)}`],
        ["of them reporting", m.backends_reporting],
    ];
    $("totals").replaceChildren(...rows.map(([name, value]) => {
        const row = make("div");
        row.append(make("dt", "", name),
            make("dd", "", typeof value === "string" ? value : number(value)));
        return row;
    }));
}

// ---- backends ----

// Sessions that count against its capacity: what it has no room for any more. Without a
// report, those of this proxy against the limit.
function loadOf(b) {
    const capacity = b.effective_capacity ?? (b.max_sessions > 0 ? b.max_sessions : null);
    const pending = b.has_report ? b.pending ?? 0 : 0;
    const taken = b.has_report && b.reported_sessions != null ? b.reported_sessions
        : b.has_report && capacity != null && b.remaining_sessions != null
            ? Math.max(capacity - b.remaining_sessions - pending, 0) : b.open_sessions;
    return {capacity, pending, taken};
}

function remember(b, load) {
    const key = b.name + " " + b.address;
    const kept = history.get(key) ?? [];
    kept.push({sessions: load.taken + load.pending, capacity: load.capacity});
    if (kept.length > KEPT) kept.shift();
    history.set(key, kept);
    return kept;
}

function line(points, className) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", className);
    path.setAttribute("d", points);
    return path;
}

function drawHistory(kept) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${KEPT} 40`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const top = 1.1 * Math.max(1, ...kept.map(k => Math.max(k.sessions, k.capacity ?? 0)));
    for (const key of ["capacity", "sessions"]) {
        let points = "", pen = "M";
        kept.forEach((k, i) => {
            if (k[key] == null) { pen = "M"; return; }
            points += `${pen}${KEPT - kept.length + i} ${40 - 40 * k[key] / top}`;
            pen = "L";
        });
        svg.append(line(points, key));
    }
    return svg;
}

function flagOf(b) {
    if (!b.up) return "down";
    if (b.ejected) return "ejected";
    if (b.draining) return "draining";
    return b.slow_start < 1 ? "warming up" : "";
}

function drawBackend(b) {
    const load = loadOf(b), used = load.taken + load.pending;
    const card = make("section", "backend");
    const flag = flagOf(b);
    card.dataset.name = b.name;
    if (!b.up) card.classList.add("down");
    const title = make("h3", "", b.name);
    title.append(make("span", "address", b.address), make("span", "flag bad", flag));
    const bar = make("div", "bar");
    const whole = Math.max(load.capacity ?? used, used, 1);
    for (const part of ["taken", "pending"]) {
        const piece = make("i", part);
        piece.style.width = 100 * load[part] / whole + "%";
        bar.append(piece);
    }
    bar.append(make("i", "room"));
    // Young sessions count for more than they cost yet: less than no room is none.
    const room = b.remaining_sessions == null ? null : Math.max(b.remaining_sessions, 0);
    const isOver = load.capacity != null && used > load.capacity;
    const says = make("p", isOver ? "bad" : "",
        `${number(used, 1)} of ${number(load.capacity, 1)} sessions`
        + (isOver ? ": more than it can carry" : `, room for ${number(room, 1)}`));
    says.classList.add("load");
    const facts = [`${number(b.open_sessions)} from here`,
        b.report_age_seconds == null ? "no report" : `report ${seconds(b.report_age_seconds)} old`];
    if (b.has_report && b.cpu_utilization != null)
        facts.push(`CPU ${number(100 * b.cpu_utilization)} %`);
    if (b.failures_total) facts.push(`${number(b.failures_total)} failures`);
    if (b.reports_refused) facts.push(`${number(b.reports_refused)} reports refused`);
    card.append(title, bar, says, make("p", "faint", facts.join(" · ")),
        drawHistory(remember(b, load)));
    return card;
}

// ---- decisions ----

function drawDecision(d) {
    const row = make("tr");
    const others = d.rows.filter(r => r.backend !== d.backend).slice(0, 8)
        .map(r => `${r.backend} ${number(r.remaining_sessions, 1)}`);
    const cells = [seconds(d.age_seconds) + " ago", d.session, d.backend ?? "nowhere",
        number(d.remaining_sessions, 1), WHY[d.reason] ?? d.reason, others.join(", ")];
    row.append(...cells.map(text => make("td", "", String(text))));
    if (d.backend == null) row.classList.add("bad");
    return row;
}

// ---- the loop ----

async function get(path) {
    const answer = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(5000)});
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer;
}

async function draw() {
    const [backends, explain, metrics] = await Promise.all(
        ["backends", "explain", "metrics"].map(get));
    const pool = await backends.json(), m = metricsOf(await metrics.text());
    const {decisions} = await explain.json();
    $("policy").textContent = pool.policy.replaceAll("_", " ");
    $("state").textContent = m.draining ? "draining: no new sessions" : "accepting sessions";
    $("state").className = m.draining ? "bad" : "";
    drawTotals(m);
    $("backends").replaceChildren(...pool.backends.map(drawBackend));
    $("decisions").replaceChildren(...decisions.slice(0, SHOWN_DECISIONS).map(drawDecision));
}

async function go() {
    try {
        await draw();
    } catch (e) {
        $("state").textContent = "the proxy does not answer: " + e.message;
        $("state").className = "bad";
    }
    setTimeout(go, EVERY_MS);
}

go();
