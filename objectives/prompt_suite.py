"""The fixed suite of prompts: varied, realistic, and never the same sentence twice.

Variety is the point. On repeated text n-gram speculation accepts everything and even a different
number format says the same tokens, so neither speed nor parity can be judged there. Changing a word
here changes every measurement: the suite's hash is part of a workload's identity.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class SuitePrompt:
    """A passage to read and a task to end on; both in plain words."""

    name: str
    passage: str
    task: str


SUITE: tuple[SuitePrompt, ...] = (
    SuitePrompt(
        name="latency-report",
        passage=(
            "The night shift noticed it first. Between two and four in the morning the checkout "
            "service answered in ninety milliseconds, as it always had; from eight on, the "
            "slowest one percent of requests took more than two seconds. Nothing had been "
            "deployed since Thursday. The graphs of processor load were flat, and the database "
            "reported a hit rate of ninety-eight percent. What had changed was the number of "
            "open connections, which climbed in steps of sixty-four and never came down again "
            "until somebody restarted the pool."
        ),
        task=(
            "Explain to a new colleague, step by step, how you would find the cause of the slow "
            "requests and which measurement you would take first:\n"
        ),
    ),
    SuitePrompt(
        name="lighthouse-story",
        passage=(
            "Ines kept the lamp for eleven winters after her father could no longer climb the "
            "stairs. The supply boat came on the first calm day of each month, which in January "
            "could mean not at all. She wrote the weather in one book and her thoughts in "
            "another, and over the years the two books grew to resemble each other so much that "
            "the inspector, who read only the first, asked whether a storm had really been "
            "'undecided'."
        ),
        task=(
            "Continue the story with the night on which the lamp went out, in the same quiet "
            "voice:\n"
        ),
    ),
    SuitePrompt(
        name="python-review",
        passage=(
            "def merge_ranges(ranges):\n"
            "    result = []\n"
            "    for start, end in sorted(ranges):\n"
            "        if result and start <= result[-1][1]:\n"
            "            result[-1] = (result[-1][0], end)\n"
            "        else:\n"
            "            result.append((start, end))\n"
            "    return result\n"
            "\n"
            "A user reports that merge_ranges([(1, 10), (2, 3), (9, 12)]) loses part of the "
            "first range. The function has no tests, and it is called from four places with "
            "lists of a few thousand pairs."
        ),
        task=(
            "Review this function: name the bug, show the corrected line, and list three test "
            "cases:\n"
        ),
    ),
    SuitePrompt(
        name="garden-plan",
        passage=(
            "The plot is nine metres long and four wide, with a brick wall on the north side "
            "that holds the day's warmth until evening. The soil is heavy clay; after rain the "
            "water stands for a day in the lower corner. Last year the beans did well along the "
            "wall, the carrots forked, and the slugs had every lettuce but one. There is time "
            "for about three hours of work each weekend, and a water butt that lasts ten dry "
            "days."
        ),
        task="Draw up a planting plan from March to October, with a reason for each bed:\n",
    ),
    SuitePrompt(
        name="contract-summary",
        passage=(
            "The supplier shall deliver the equipment within forty days of the written order. "
            "Where delivery is late for reasons within the supplier's control, the customer may "
            "reduce the price by one half of a percent for each full week, up to six percent in "
            "total. The customer shall inspect the equipment within ten working days and shall "
            "report visible defects in writing. Neither party is liable for loss of profit, "
            "except where it acted with intent. Disputes go to a mediator before they go to "
            "court."
        ),
        task="Summarise the duties of each party in plain language, as two short lists:\n",
    ),
    SuitePrompt(
        name="trip-arithmetic",
        passage=(
            "Three friends share a van for a trip of 1,260 kilometres. The van uses 8.4 litres "
            "for every hundred kilometres, and fuel costs 1.72 per litre. Tolls come to 46.50 in "
            "total. They sleep two nights in a cabin that costs 78 per night, and the second "
            "night is ten percent cheaper. One of them joins only for the last third of the way "
            "and does not stay in the cabin on the first night."
        ),
        task=(
            "Work out a fair share for each of the three, and show every step of the calculation:\n"
        ),
    ),
    SuitePrompt(
        name="spanish-letter",
        passage=(
            "Estimada señora Robledo: Le escribo porque el martes pasado olvidé un paraguas azul "
            "en su consulta. No tiene gran valor, pero perteneció a mi abuela, que lo llevaba "
            "incluso en los días de sol. Si alguien lo ha encontrado, pasaría a recogerlo "
            "cualquier tarde después de las cinco. Aprovecho para confirmar la cita del día "
            "catorce y para preguntar si debo acudir en ayunas, como la última vez."
        ),
        task=(
            "Translate the letter into English, and then answer it in Spanish on the doctor's "
            "behalf:\n"
        ),
    ),
    SuitePrompt(
        name="battery-physics",
        passage=(
            "A lithium cell ages in two ways at once. It ages with the calendar, because a film "
            "on the negative electrode thickens slowly even when nobody uses the cell, and "
            "faster when it is warm and full. It ages with use, because the electrode particles "
            "swell and shrink with each cycle until some of them lose contact. The two effects "
            "do not simply add: a cell that is cycled gently may outlast one that waits, "
            "charged, on a sunny window sill."
        ),
        task=(
            "Explain why a phone that is kept at half charge lasts longer, with one everyday "
            "comparison:\n"
        ),
    ),
    SuitePrompt(
        name="meeting-minutes",
        passage=(
            "Present: Aaltonen, Brandt, Choudhury, Okafor. Brandt reported that the second "
            "furnace is three weeks late, as the lining was delivered in the wrong grade. Okafor "
            "proposed to run the first furnace on Sundays until then; Aaltonen objected that the "
            "filters would not last. It was agreed to rent a filter unit, if the cost stays "
            "under nine thousand. Choudhury will ask two suppliers by Wednesday. The safety "
            "drill moves to the twentieth."
        ),
        task="Write the list of decisions and actions, with the person and the date for each:\n",
    ),
    SuitePrompt(
        name="sql-question",
        passage=(
            "Table orders has the columns id, customer_id, placed_at, total_cents and status; "
            "table customers has id, name, country and joined_at. Roughly four million orders "
            "are stored, of which a tenth are cancelled. There is an index on "
            "orders(customer_id), and none on placed_at. The weekly report, which lists for each "
            "country the ten customers with the highest turnover of the last ninety days, now "
            "takes eleven minutes."
        ),
        task=(
            "Write the query for the report, propose one index, and say what the query plan "
            "should show:\n"
        ),
    ),
    SuitePrompt(
        name="bread-recipe",
        passage=(
            "For two loaves take 900 grams of strong flour, 620 of water, 18 of salt and a "
            "spoonful of the sourdough that was fed the evening before. Mix everything but the "
            "salt and wait half an hour. Add the salt, and fold the dough four times at "
            "intervals of thirty minutes; it will be slack at first and smooth at the end. It "
            "then rises until it has grown by half, which at twenty degrees takes five hours and "
            "at twenty-six hardly three."
        ),
        task=(
            "The kitchen is cold today, only seventeen degrees. Adapt the recipe and give a "
            "timetable:\n"
        ),
    ),
    SuitePrompt(
        name="harbour-history",
        passage=(
            "The harbour silted up within a single generation. In 1540 ships of two hundred tons "
            "still unloaded at the town quay; by 1575 the customs books record only lighters, "
            "which met the ships a mile out. The council blamed the dike builders upstream, the "
            "dike builders blamed the herring, and a preacher blamed the council. The merchants, "
            "meanwhile, quietly bought land further north, where the current ran close to the "
            "shore."
        ),
        task=(
            "What can a historian learn from the customs books that the council's letters hide? "
            "Discuss:\n"
        ),
    ),
    SuitePrompt(
        name="json-extraction",
        passage=(
            "Ticket 48213, opened on 3 May by Petra Lindqvist (Malmö): the label printer in "
            "aisle seven feeds two labels at a time since the firmware was updated to 2.9.1. "
            "Power cycling helps for about an hour. Ticket 48219, opened on 4 May by D. Nwosu "
            "(Leeds): scanner 12 beeps but does not transmit; the battery was replaced in April. "
            "Ticket 48220, opened on 4 May, no name: the door of cold store B does not close by "
            "itself."
        ),
        task=(
            "Return these tickets as a JSON array with the keys id, date, reporter, site, "
            "device, fault:\n"
        ),
    ),
    SuitePrompt(
        name="chess-dialogue",
        passage=(
            "'You always trade the bishop,' said Tomasz, 'as if it were burning your fingers.' "
            "His sister shrugged and wrote down the move. Outside, the tram bell rang twice, and "
            "the rain began again on the tin roof of the market. She had thirty minutes left and "
            "he had four. 'In the long run,' she said, 'a knight sees round corners.' He looked "
            "at the board for so long that the arbiter put down his newspaper."
        ),
        task=(
            "Write the rest of the conversation as a dialogue, and let the outcome of the game "
            "stay open:\n"
        ),
    ),
    SuitePrompt(
        name="sensor-log",
        passage=(
            "06:00 inlet 14.2 C outlet 31.8 C flow 2.41\n"
            "06:10 inlet 14.1 C outlet 32.0 C flow 2.40\n"
            "06:20 inlet 14.3 C outlet 35.9 C flow 1.97\n"
            "06:30 inlet 14.2 C outlet 41.4 C flow 1.52\n"
            "06:40 inlet 14.4 C outlet 47.3 C flow 1.18\n"
            "06:50 pump B started by operator\n"
            "07:00 inlet 14.3 C outlet 33.1 C flow 2.38\n"
            "07:10 inlet 14.2 C outlet 32.2 C flow 2.42\n"
            "The maintenance book says that strainer A was last cleaned in February."
        ),
        task=(
            "Describe what happened between six and seven, the likely cause, and what to check "
            "next:\n"
        ),
    ),
    SuitePrompt(
        name="debate-notes",
        passage=(
            "For: the river bridge carries eleven thousand cars a day, and the ambulance needs "
            "nineteen minutes to the far bank at rush hour. A second bridge would cut that to "
            "eight. Against: the meadow it would cross is the last one where the curlew nests, "
            "the money would come out of the fund for schools, and traffic counts have fallen "
            "three years in a row. The ferry operator offers a night service, if the town pays "
            "for half of the crew."
        ),
        task=(
            "Give the strongest argument on each side, then a decision with the condition that "
            "goes with it:\n"
        ),
    ),
)


def suite_sha() -> str:
    """SHA-256 of the suite's words; part of the identity of every workload that uses it."""
    words = "\0".join(f"{p.name}\0{p.passage}\0{p.task}" for p in SUITE)
    return hashlib.sha256(words.encode()).hexdigest()
