"""Programs that subjects run as processes: peers, floors and floods, which import little."""
