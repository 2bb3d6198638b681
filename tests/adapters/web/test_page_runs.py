"""Runs on the dashboard in a real browser: their list with the budgets, one run, the kill switch."""

from datetime import date
from functools import partial

import anyio.from_thread
import web_server
from web_server import EVE, Site, going

from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.supervisor import run_once
from proctor.supervisor.testing.fakes import Ask, FakeAdapter
from tests.dashboard import ASKS, POLICY, Person, ends, expect, needs_browser

pytestmark = needs_browser


def test_a_shared_budget_is_a_bar_above_the_runs(person: Person, site: Site) -> None:
    """It grows with the runs' usage, without a reload."""
    policy = "name: shared\nbudgets: [{name: words, max_total_tokens: 1000, per: $.tenant}]\n"
    script = "steps: [{usage: {input_tokens: 300, output_tokens: 100}}, {say: done}]"
    web_server.ran(site, script, policy, "--context", "tenant=acme")
    tab = person.opens()
    bar = tab.get_by_role("meter", name='shared/words $.tenant="acme"')
    expect(bar).to_have_attribute("aria-valuetext", "400 of 1,000")
    web_server.ran(site, script, policy, "--context", "tenant=acme")
    expect(bar).to_have_attribute("aria-valuetext", "800 of 1,000")
    expect(tab.get_by_role("region", name="Shared budgets")).to_contain_text("200 left")


def test_budgets_of_one_name_are_bars_of_their_own(person: Person, site: Site) -> None:
    """A policy counted tokens and now counts tool calls: both budgets stay, once each, however often they change."""
    usage = "steps: [{usage: {input_tokens: 300, output_tokens: 100}}, {say: done}]"
    for amount in ("max_total_tokens: 1000", "max_tool_calls: 10"):
        web_server.ran(site, usage, f"name: changed\nbudgets: [{{name: one, {amount}}}]\n")
    tab = person.opens()
    bars = tab.get_by_role("meter", name="changed/one")
    expect(bars).to_have_count(2)
    web_server.ran(site, usage, "name: changed\nbudgets: [{name: one, max_total_tokens: 1000}]\n")
    expect(bars.and_(tab.locator("[aria-valuetext='800 of 1,000']"))).to_be_attached()
    expect(bars).to_have_count(2)


def test_a_filtered_timeline_shows_what_matches_as_it_happens(person: Person, site: Site) -> None:
    """A call arrives as a name; its input and its denial, which the filter asks for, come after it."""
    script = ASKS + "  - {call: write, input: {path: later.txt, content: x}}\n"
    with going(site, script, POLICY) as process, web_server.waits(process) as event:
        tab = person.opens(f"#/run/{event['run_id']}")
        expect(tab.locator(".call")).to_have_count(1)
        tab.get_by_label("Search the timeline").fill("later.txt")
        expect(tab.locator(".call")).to_be_hidden()
        tab.get_by_text("Denied, asked", exact=True).click()
        tab.get_by_role("button", name="Approve").click()
        expect(tab.locator(".call", has_text="later.txt")).to_be_visible()
        tab.locator(".approval", has_text="later.txt").get_by_role("button", name="Deny").click()
        ends(site, event["run_id"])


def test_the_calls_of_a_reused_id_are_cards_of_their_own(person: Person, site: Site) -> None:
    """Each with its input, its outcome and why it was decided so."""
    policies = parse_policies(
        "name: team\non_violation: deny\nrules: [{id: twice, type: count, tool: bash, max: 2}]\n"
    )
    agent = FakeAdapter([Ask(name="bash", id="c1", input={"command": "make"}, turn=turn) for turn in (1, 2, 3)])
    with anyio.from_thread.start_blocking_portal() as portal:
        store = portal.call(SQLiteStore, site.store)
        result = portal.call(partial(run_once, agent, "Clean up", policies=policies, store=store))
        portal.call(store.aclose)
    tab = person.opens(f"#/run/{result.run_id}")
    expect(tab.locator(".call .pill")).to_have_text(["allowed", "allowed", "denied"])
    expect(tab.locator(".call .args")).to_have_text(["command: make"] * 3)
    expect(tab.locator(".call", has_text="team/twice")).to_have_count(1)
    for why in tab.locator(".call summary", has_text="Why").all():
        why.click()
    expect(tab.locator(".steps")).to_have_count(3)


def test_a_call_that_failed_is_not_drawn_as_one_that_went_well(person: Person, site: Site) -> None:
    """It was allowed, and its outcome has the colour."""
    events = web_server.ran(site, "tools: [bash]\nsteps: [{call: bash, input: {command: exit 3}}]\n", POLICY)
    tab = person.opens(f"#/run/{events[0]['run_id']}")
    expect(tab.locator(".call .pill")).to_have_text("allowed, failed")
    expect(tab.locator(".call .pill")).to_have_class("pill care")


def test_a_run_is_read_with_the_keyboard(person: Person, site: Site) -> None:
    """It has the focus of the row that led to it. Its tabs are one stop, with arrow keys between them, and name their
    panels. Its facts stay selected while time goes by and other runs are made; reasons that could not be fetched are
    fetched when they are opened again.
    """
    (run_id,) = {
        event["run_id"] for event in web_server.ran(site, ASKS, "name: free\ntool_rules: [{deny: [bash]}]\n")
    }
    tab = person.opens()
    tab.clock.install()
    tab.locator(f".run[href='#/run/{run_id}']").press("Enter")
    expect(tab.get_by_role("main")).to_be_focused()
    expect(tab.locator(".about .pill")).to_have_text("completed")
    tab.locator(".facts code").first.evaluate("code => getSelection().selectAllChildren(code)")
    with tab.expect_response(f"**/api/runs/{run_id}"):
        web_server.ran(site, "steps: [{say: Hello.}]\n", POLICY)
    tab.clock.run_for(3000)
    assert tab.evaluate("() => getSelection().toString()") == run_id
    tab.route("**/decisions", lambda route: route.abort(), times=1)
    why = tab.locator(".call summary", has_text="Why")
    why.click()
    expect(tab.get_by_text("The server does not answer. Try again.")).to_be_visible()
    why.click()
    why.click()
    expect(tab.locator(".steps").first).to_contain_text("no rule denies it")
    tab.get_by_role("tab", name="Timeline").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.get_by_role("tab", name="Policies in force", selected=True)).to_be_focused()
    expect(tab.get_by_role("tabpanel", name="Policies in force")).to_contain_text("tool_rules:")
    tab.keyboard.press("Shift+Tab")
    expect(tab.get_by_role("tab", name="Timeline")).not_to_be_focused()
    person.wrong.clear()  # the browser reports the request that failed


def test_the_link_to_the_content_stays_in_the_view(person: Person, site: Site) -> None:
    """For who reads with a keyboard: the focus moves behind the navigation, and the run stays open."""
    with going(site, ASKS, POLICY) as process, web_server.waits(process) as event:
        tab = person.opens(f"#/run/{event['run_id']}")
        expect(tab.locator(".call")).to_be_visible()
        tab.get_by_role("link", name="Skip to the content").focus()
        tab.keyboard.press("Enter")
        expect(tab.get_by_role("main")).to_be_focused()
        expect(tab.locator(".call")).to_be_visible()
        assert tab.url.endswith(f"#/run/{event['run_id']}")


def test_a_run_that_could_not_be_read_at_first_is_shown_with_its_timeline(person: Person, site: Site) -> None:
    """The server did not answer for a moment, as when it starts again."""
    hello = "steps: [{say: Hello.}]\n"
    run_id = web_server.ran(site, hello, POLICY)[0]["run_id"]
    tab = person.opens()
    tab.route(f"**/api/runs/{run_id}", lambda route: route.abort(), times=2)
    with tab.expect_event("requestfailed", lambda request: request.url.endswith(run_id)):
        tab.evaluate("id => { location.hash = `#/run/${id}` }", run_id)
    web_server.ran(site, hello, POLICY)
    expect(tab.locator(".about .pill")).to_have_text("completed")
    expect(tab.locator(".about .pill")).to_be_visible()
    expect(tab.locator(".line")).to_contain_text("Hello.")
    person.wrong.clear()  # the browser reports the requests that failed


def test_earlier_runs_are_offered_while_there_is_a_page_of_them(person: Person) -> None:
    """The list has up to 500 runs: a button that could show no more is not there."""
    tab = person.opens()
    tab.route("**/api/runs?*", lambda route: route.fulfill(json={"runs": [], "next": "run_earlier"}))
    with tab.expect_response("**/api/runs?*q=many*"):
        tab.get_by_label("Search runs").fill("many")
    button = tab.get_by_role("button", name="Show earlier runs")
    for limit in range(50, 500, 50):
        expect(button).to_be_visible()
        with tab.expect_response(f"**/api/runs?*limit={limit + 50}*"):
            button.click()
    expect(button).to_be_hidden()


def test_a_run_is_cancelled_from_its_page(person: Person, site: Site) -> None:
    """After a confirmation."""
    with going(site, "steps: [{silence: forever}]\n", POLICY):
        (run,) = site.until("/api/runs?status=running", lambda found: found["runs"])["runs"]
        tab = person.opens(f"#/run/{run['run_id']}")
        tab.get_by_role("button", name="Cancel this run").click()
        tab.get_by_label("Why (recorded)").fill("enough of it")
        tab.get_by_role("button", name="Cancel the run", exact=True).click()
        expect(tab.locator(".about .pill")).to_have_text("cancelled")
        expect(tab.get_by_text("enough of it")).to_be_visible()


def test_the_end_of_a_lost_run_is_on_its_timeline(person: Person, site: Site) -> None:
    """Its stream has an end as well, as nobody goes on with it; whoever ends it later stores more events."""
    with going(site, ASKS, POLICY) as process, web_server.waits(process) as event:
        process.kill()
        process.wait()
        tab = person.opens(f"#/run/{event['run_id']}")
        expect(tab.locator(".about .pill")).to_have_text("lost")
        expect(tab.locator(".call")).to_be_visible()
        site.ask("POST", f"/api/runs/{event['run_id']}/cancel", body={"reason": "its machine is gone"})
        expect(tab.locator(".about .pill")).to_have_text("failed")
        expect(tab.locator(".line .banner")).to_contain_text("failed")


def test_the_kill_switch_is_set_and_lifted(person: Person, site: Site) -> None:
    """By keyboard to the dialog. Every tab shows it, and nothing starts until it is lifted."""
    hello = "steps: [{say: Hello.}]\n"
    with going(site, "steps: [{silence: forever}]\n", POLICY):
        site.until("/api/runs?status=running", lambda found: found["runs"])
        tab, other = person.opens(), person.opens(token=EVE)
        tab.keyboard.press("s")
        tab.get_by_label("Why (recorded)").fill("an incident")
        end = tab.get_by_role("button", name="Cancel 1 run")
        expect(tab.get_by_text("1 run will be cancelled.")).to_be_visible()
        expect(end).to_be_disabled()
        tab.locator("#stop-scope").select_option("tenant")
        tab.get_by_label("Which: name, id, or NAME=VALUE").fill("nobody")
        expect(tab.get_by_role("button", name="Cancel 0 runs")).to_be_enabled()
        tab.locator("#stop-scope").select_option("everything")
        tab.get_by_label("Type “everything” to stop every run").fill("everything")
        end.click()
        expect(tab.get_by_text("1 run cancelled").first).to_be_visible()
        expect(other.get_by_role("alert")).to_contain_text("No run starts until somebody lifts it. ana")
        expect(other.get_by_role("alert").get_by_role("button")).to_have_count(0)
        assert site.get("/api/runs?status=running")["runs"] == []
        assert not any(event["type"] == "run_started" for event in web_server.ran(site, hello, POLICY))
        tab.get_by_role("button", name="Lift").click()
        expect(other.get_by_role("alert")).to_be_hidden()
        assert any(event["type"] == "run_completed" for event in web_server.ran(site, hello, POLICY))


def test_starts_are_frozen_while_runs_go_on(person: Person, site: Site) -> None:
    """By Enter in the field that names them. What was done is reported, and nothing can be confirmed that would do
    nothing.
    """
    tab = person.opens()
    tab.keyboard.press("s")
    tab.locator("#stop-scope").select_option("tenant")
    tab.get_by_label("Which: name, id, or NAME=VALUE").fill("frozen")
    tab.get_by_label("Cancel what runs now").uncheck()
    freeze = tab.get_by_role("button", name="Freeze", exact=True)
    tab.get_by_label("Freeze starts").uncheck()
    expect(freeze).to_be_disabled()
    tab.get_by_label("Freeze starts").check()
    tab.get_by_label("Which: name, id, or NAME=VALUE").press("Enter")
    expect(tab.get_by_role("alert")).to_contain_text("No run of tenant frozen starts")
    expect(tab.locator(".toast")).to_have_text("Starts are frozen")
    tab.get_by_role("button", name="Lift").click()
    expect(tab.get_by_role("alert")).to_be_hidden()


def test_many_freezes_leave_room_for_the_page(person: Person, site: Site) -> None:
    """They stay in view on a phone, too, and are scrolled through."""
    tab = person.opens()
    tab.set_viewport_size({"width": 390, "height": 844})
    for n in range(12):
        site.ask("POST", "/api/switch", body={"tenant": f"customer-{n}", "end_runs": False, "wait_s": 0})
    expect(tab.get_by_role("button", name="Lift")).to_have_count(12)
    height = tab.get_by_role("alert").bounding_box()["height"]
    site.ask("POST", "/api/switch/lift", body={"everything": True})

    assert height < 300


def test_the_list_marks_runs_with_violations_and_has_their_dates(person: Person, site: Site) -> None:
    """Only those. Rows and timelines have dates."""
    denies = "name: team\ntool_rules: [{deny: [write]}]\non_violation: deny\n"
    refused = web_server.ran(site, ASKS, denies, prompt="Refused")[-1]
    web_server.ran(site, "steps: [{say: Hello.}]\n", denies, prompt="Spotless")
    today = date.today()
    tab = person.opens()
    row = tab.locator(".run", has_text="Refused")
    expect(row.locator(".mark")).to_have_text("1 violation")
    expect(row.locator(".figures")).to_contain_text(f"{today.day} {today:%b}")
    expect(tab.locator(".run", has_text="Spotless").locator(".mark")).to_be_hidden()
    tab.evaluate("id => { location.hash = `#/run/${id}` }", refused["run_id"])
    expect(tab.locator(".day")).to_have_text(f"{today:%A}, {today.day} {today:%B %Y}")
    card = tab.locator(".call")
    expect(card).to_contain_text("denied")
    assert card.inner_text().count("`write` was requested") == 0
    assert card.inner_text().count("write was requested") == 1
    tab.get_by_role("tab", name="Policies in force").click()
    expect(tab.locator("pre", has_text="tool_rules:")).to_contain_text("- deny: [write]")
