from pipeline.domain.speech import REP, AudioAnalysis, Diarization, Recognized, Voiceprint
from pipeline.domain.stage import Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import public_message
from pipeline.record_texts import warning_text
from pipeline.speakers import gate
from pipeline.speakers.reclustering import reclustered, with_margin
from pipeline.speakers.second_look import spoken_pieces, two_voices
from pipeline.steps.call_run import NO_ENGINE, CallRun


async def diarize(run: CallRun, audio: AudioAnalysis) -> Diarization:
    if not audio.chunks:
        return Diarization((), {}, "none: no speech was found")
    return await run.workers.diarize(await run.sound.get())


async def recluster(run: CallRun, recognized: Recognized, diarization: Diarization) -> Diarization:
    """Return the diarization with each piece of the call judged by its own voice.

    The same diarization if no calibration says from which cosine pieces are one voice, or if the sound is gone.
    """
    calibration = run.options.roles.calibration_of(diarization.engine)
    min_cosine = calibration.pieces if calibration else None
    if min_cosine is None or await run.is_out_of_reach(Stage.RECLUSTERING):
        return diarization
    return await run.stage(Stage.RECLUSTERING, lambda: _recluster(run, recognized, diarization, min_cosine))


async def _recluster(run: CallRun, recognized: Recognized, diarization: Diarization, min_cosine: float) -> Diarization:
    spoken = await run.workers.compute(spoken_pieces, recognized.texts, diarization.spans)
    pieces = [piece.span for piece in spoken]
    wide = with_margin(pieces)
    voiceprints = await run.workers.voices(await run.sound.get(), 0, wide) if wide else []
    by_voice = await run.workers.compute(reclustered, diarization, pieces, voiceprints, min_cosine)
    return await run.workers.compute(two_voices, by_voice, spoken, voiceprints, min_cosine)  # type: ignore[no-any-return]


async def rep_voiceprint(run: CallRun, audio: AudioAnalysis) -> Voiceprint | None:
    """Return the voiceprint of the rep's channel. No call waits for it if the diarizer, which makes it, is missing."""
    try:
        return await run.stage(Stage.VOICEPRINT, lambda: _rep_voiceprint(run, audio))
    except NO_ENGINE as error:
        run.warnings.append(warning_text(CallWarning.REP_VOICE_NOT_COMPARED, problem=public_message(error)))
        return None


async def _rep_voiceprint(run: CallRun, audio: AudioAnalysis) -> Voiceprint | None:
    speech = gate.clean_speech(audio)
    if not speech:
        return None
    voiceprint = await run.workers.voiceprint(await run.sound.get(), REP, speech)
    if voiceprint is None:
        return None
    return gate.judged(voiceprint, audio, run.options.roles.calibration_of(voiceprint.model))
