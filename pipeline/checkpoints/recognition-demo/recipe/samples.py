"""Scripted sample calls.  usage: samples.py WORK OUTDIR
Each call: FLAC file(s) and NAME.json with the reference (who, start, end, text, words, commitments)."""

import json
import os
import sys

import numpy as np
import soundfile as sf

import data
import tts

SR = 8000
V = {
    "anna": ("gmw/en-US+f2", 160, 55),
    "peter": ("gmw/en-US+m3", 155, 45),
    "laura": ("gmw/en+f3", 160, 55),
    "john": ("gmw/en+m1", 160, 45),
    "slt": ("flite:slt", 1.0, 170),
    "rms": ("flite:rms", 1.0, 100),
    "lucia": ("roa/es+f2", 160, 55),
    "pablo": ("roa/es-419+m3", 155, 45),
    "sabine": ("gmw/de+f2", 160, 55),
    "hans": ("gmw/de+m3", 155, 45),
}

# name: (layout, language, rep voice, customer voice, [(who, text, pause after, commitment)])
CALLS = {
    "01_invoice_stereo": (
        "stereo",
        "en",
        "anna",
        "peter",
        [
            ("rep", "Good morning, this is Anna from Northwind Energy, how can I help you?", 0.6, None),
            ("cust", "Hi, my name is Peter Miller.", 0.3, None),
            ("cust", "I was charged two hundred dollars twice.", 0.7, None),
            ("rep", "I am very sorry about that.", 0.3, None),
            ("rep", "Can you give me your customer number?", 0.8, None),
            ("cust", "My customer number is four seven two nine.", 0.6, None),
            ("rep", "One moment, please.", 2.5, None),
            ("rep", "I can see your order here.", 0.4, None),
            ("rep", "I will send you the invoice by Friday.", 0.5, "send the invoice by Friday"),
            (
                "rep",
                "We will refund two hundred dollars by the end of the week.",
                0.7,
                "refund two hundred dollars by the end of the week",
            ),
            ("cust", "Thank you very much for your help.", 0.5, None),
            ("rep", "Is there anything else I can do for you?", 0.5, None),
            ("cust", "No, that is all.", 0.4, None),
            ("rep", "Thank you, have a nice day.", 0.5, None),
        ],
    ),
    "02_callback_stereo": (
        "stereo",
        "en",
        "john",
        "laura",
        [
            ("rep", "Crystal Clear Windows, John speaking, how may I help you today?", 0.6, None),
            ("cust", "Hello, this is Laura Bennett, I am calling about my order.", 0.4, None),
            ("cust", "The delivery was supposed to arrive last Tuesday.", 0.8, None),
            ("rep", "I am sorry to hear that.", 0.3, None),
            ("rep", "May I have your order number, please?", 0.7, None),
            ("cust", "It is three one zero eight five.", 0.7, None),
            ("rep", "So that is three one zero eight five, correct?", 0.5, None),
            ("cust", "Yes, that is right.", 0.7, None),
            (
                "rep",
                "I will check with the warehouse and call you back tomorrow morning.",
                0.6,
                "call back tomorrow morning after checking with the warehouse",
            ),
            ("cust", "Okay, my phone number is five five five, two four one, nine zero three six.", 0.6, None),
            ("rep", "Thank you for your call.", 0.4, None),
            ("cust", "Thanks, goodbye.", 0.4, None),
        ],
    ),
    "03_repair_mono": (
        "mono",
        "en",
        "laura",
        "john",
        [
            ("rep", "Thank you for calling Rapid Repair.", 0.5, None),
            ("cust", "Good afternoon, the washing machine I bought last month is leaking.", 0.7, None),
            ("rep", "What is your address?", 0.6, None),
            ("cust", "I live at twenty four Maple Street, Boston.", 0.7, None),
            (
                "rep",
                "I will send a technician on Thursday at half past nine.",
                0.6,
                "send a technician on Thursday at half past nine",
            ),
            ("cust", "Thursday is good.", 0.5, None),
            ("rep", "The technician will arrive between nine and eleven.", 0.6, None),
            ("cust", "How much does it cost?", 0.6, None),
            ("rep", "The washing machine is still under warranty.", 0.5, None),
            ("cust", "That sounds great.", 0.4, None),
            (
                "cust",
                "I will send you a copy of the invoice by email today.",
                0.6,
                "customer sends a copy of the invoice by email today",
            ),
            ("rep", "Thanks a lot, goodbye.", 0.4, None),
        ],
    ),
    "04_contract_two_files": (
        "two",
        "en",
        "peter",
        "anna",
        [
            ("rep", "Good evening, this is Peter from Silver Star Insurance, am I speaking to Miss Clark?", 0.6, None),
            ("cust", "Yes, this is Anna Clark.", 0.5, None),
            ("rep", "I am calling you back about the contract.", 0.5, None),
            ("rep", "The contract ends on the thirty first of March.", 0.6, None),
            ("cust", "How much is the yearly plan?", 0.6, None),
            ("rep", "The yearly plan costs ninety five dollars per month.", 0.7, None),
            ("cust", "Is there a discount for the yearly plan?", 0.7, None),
            (
                "rep",
                "I will talk to my manager and get back to you by Wednesday.",
                0.7,
                "talk to the manager and get back by Wednesday",
            ),
            ("cust", "Could you please send me the new offer by Monday?", 0.5, None),
            ("rep", "Yes, I will send you the new offer by Monday.", 0.5, "send the new offer by Monday"),
            ("cust", "Thank you so much, talk to you next week.", 0.5, None),
        ],
    ),
    "05_factura_stereo_es": (
        "stereo",
        "es",
        "lucia",
        "pablo",
        [
            ("rep", "Buenos días, soy Lucía de Energía del Norte, ¿en qué puedo ayudarle?", 0.6, None),
            ("cust", "Hola, me llamo Pablo Sánchez.", 0.3, None),
            ("cust", "Todavía no he recibido la factura.", 0.7, None),
            ("rep", "Lo siento mucho.", 0.3, None),
            ("rep", "¿Me puede dar su número de pedido?", 0.6, None),
            ("cust", "Mi número de pedido es cuatro siete dos nueve.", 0.7, None),
            ("rep", "Un momento, por favor.", 1.8, None),
            ("rep", "Le voy a enviar la factura antes del viernes.", 0.6, "enviar la factura antes del viernes"),
            ("cust", "¿Me puede llamar mañana a las diez?", 0.5, None),
            ("rep", "Claro que sí.", 0.3, None),
            ("rep", "Le llamaré mañana a las diez.", 0.5, "llamar mañana a las diez"),
            ("cust", "Muchas gracias por su ayuda.", 0.5, None),
            ("rep", "Que tenga un buen día.", 0.4, None),
        ],
    ),
    "06_lieferung_mono_de": (
        "mono",
        "de",
        "sabine",
        "hans",
        [
            ("rep", "Guten Tag, hier ist Sabine von Nordwind Energie, wie kann ich Ihnen helfen?", 0.6, None),
            ("cust", "Guten Tag, mein Name ist Hans Schneider.", 0.4, None),
            ("cust", "Ich habe die Rechnung noch nicht bekommen.", 0.7, None),
            ("rep", "Das tut mir sehr leid.", 0.4, None),
            ("rep", "Können Sie mir Ihre Bestellnummer geben?", 0.6, None),
            ("cust", "Meine Bestellnummer ist drei acht fünf eins.", 0.7, None),
            ("rep", "Einen Moment bitte.", 1.5, None),
            ("rep", "Ich schicke Ihnen die Rechnung bis Freitag.", 0.6, "die Rechnung bis Freitag schicken"),
            ("rep", "Ich rufe Sie am Montag zurück.", 0.5, "am Montag zurückrufen"),
            ("cust", "Vielen Dank für Ihre Hilfe.", 0.5, None),
            ("rep", "Einen schönen Tag noch.", 0.4, None),
        ],
    ),
    "07_hold_stereo": (
        "stereo",
        "en",
        "laura",
        "peter",
        [
            ("rep", "You have reached technical support, Laura speaking.", 0.6, None),
            ("cust", "The internet is down since yesterday.", 0.6, None),
            ("rep", "Let me check.", 0.4, None),
            ("rep", "Could you hold the line for a moment?", 0.5, None),
            ("cust", "Sure.", 14.0, None),
            ("rep", "Thank you for waiting.", 0.5, None),
            ("rep", "I will send you the new modem by tomorrow.", 0.6, "send the new modem by tomorrow"),
            ("cust", "Okay, great.", 0.5, None),
            ("rep", "You will get the tracking number by email today.", 0.5, "tracking number by email today"),
            ("cust", "Thank you, bye bye.", 0.5, None),
        ],
    ),
    "08_flite_voices_stereo": (
        "stereo",
        "en",
        "slt",
        "rms",
        [
            ("rep", "Hello, thank you for calling Harbor Travel.", 0.6, None),
            ("cust", "Hello, I would like to change the date.", 0.6, None),
            ("rep", "May I have your order number, please?", 0.6, None),
            ("cust", "The reference number is six two zero four.", 0.7, None),
            ("rep", "Your flight to Madrid is at quarter past seven.", 0.6, None),
            ("rep", "I will send you the confirmation by Thursday.", 0.6, "send the confirmation by Thursday"),
            ("cust", "Thank you, goodbye.", 0.5, None),
        ],
    ),
}


def say(voice, text):
    v, a, b = V[voice]
    return tts.flite(text, v[6:], a, b) if v.startswith("flite:") else tts.espeak(text, v, a, b)


def channel(x, seed):
    """300-3400 Hz, faint noise, mu-law, 16 bit"""
    n = len(x)
    f = np.fft.rfftfreq(n, 1 / SR)
    x = np.fft.irfft(np.fft.rfft(x) / (1 + (300 / np.maximum(f, 1)) ** 8) / (1 + (f / 3400) ** 30), n)
    x = x + np.random.default_rng(seed).standard_normal(n) * 0.002
    return data.mulaw(np.clip(x, -1, 1)).astype(np.float32)


def main():
    work, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    for k, (name, (layout, lang, rv, cv, lines)) in enumerate(CALLS.items()):
        t, segs, parts = 0.8, [], []
        for who, text, pause, com in lines:
            x, w = say(rv if who == "rep" else cv, text)
            x = x / np.abs(x).max() * (0.5 if who == "rep" else 0.4)
            parts.append((0 if who == "rep" else 1, int(t * SR), x))
            segs.append(
                dict(
                    speaker="representative" if who == "rep" else "customer",
                    start=round(t, 2),
                    end=round(t + len(x) / SR, 2),
                    text=text,
                    commitment=com,
                    words=[
                        dict(word=z, start=round(t + a, 2), end=round(t + b, 2)) for z, (a, b) in zip(text.split(), w)
                    ],
                )
            )
            t += len(x) / SR + pause
        ch = np.zeros((2, int((t + 0.5) * SR)), np.float32)
        for c, i, x in parts:
            ch[c, i : i + len(x)] += x
        l, r = channel(ch[0], k), channel(ch[1], 100 + k)
        files = {}
        if layout == "stereo":
            sf.write(f"{out}/{name}.flac", np.stack([l, r], 1), SR, subtype="PCM_16")
            files = {f"{name}.flac": ["representative", "customer"]}
        elif layout == "two":
            sf.write(f"{out}/{name}.rep.flac", l, SR, subtype="PCM_16")
            sf.write(f"{out}/{name}.cust.flac", r, SR, subtype="PCM_16")
            files = {f"{name}.rep.flac": ["representative"], f"{name}.cust.flac": ["customer"]}
        else:
            sf.write(f"{out}/{name}.flac", channel(ch.sum(0), k), SR, subtype="PCM_16")
            files = {f"{name}.flac": ["mixed"]}
        json.dump(
            dict(
                name=name,
                language=lang,
                layout=layout,
                sample_rate=SR,
                duration=round(ch.shape[1] / SR, 2),
                files=files,
                voices=dict(representative=V[rv][0], customer=V[cv][0]),
                segments=segs,
            ),
            open(f"{out}/{name}.json", "w"),
            indent=1,
            ensure_ascii=False,
        )
        print(name, round(ch.shape[1] / SR, 1), "s")


if __name__ == "__main__":
    main()
