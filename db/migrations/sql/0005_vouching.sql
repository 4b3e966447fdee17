-- Vouching for a voiceprint that was kept back, and what ends it: another recording of the call.
ALTER TABLE voiceprint_events DROP CONSTRAINT voiceprint_events_action_check;
ALTER TABLE voiceprint_events ADD CONSTRAINT voiceprint_events_action_check
    CHECK (action IN ('removed', 'restored', 'assigned', 'vouched', 'replaced'));
